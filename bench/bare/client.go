package bare

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says which bucket is spoken to, and as whom.
type Config struct {
	// Endpoint is a URL such as http://127.0.0.1:9000. The bucket goes into the
	// path when its host is an address, else before the host.
	Endpoint string
	Bucket   string
	// KeyID and Secret sign requests; both empty means anonymous.
	KeyID  string
	Secret string
}

// Client sends requests to one bucket. Its methods may be called concurrently;
// every call that is under way has a connection of its own.
type Client struct {
	cfg       Config
	base      url.URL
	pathStyle bool
	transport *http.Transport
}

// Open returns a client of cfg. It sends nothing.
func Open(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", cfg.Bucket, err)
	}
	if base.Host == "" || cfg.Bucket == "" {
		return nil, fmt.Errorf("open bucket %q at %q: both a URL and a bucket are needed", cfg.Bucket, cfg.Endpoint)
	}
	c := &Client{cfg: cfg, base: url.URL{Scheme: base.Scheme, Host: base.Host}}
	if c.pathStyle = net.ParseIP(base.Hostname()) != nil; !c.pathStyle {
		c.base.Host = cfg.Bucket + "." + base.Host
	}
	c.transport = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 512,
		DisableCompression:  true,
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
	}
	return c, nil
}

// Close drops the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// StatusError is an answer that is not the expected one.
type StatusError struct {
	Method, Key string
	Status      int
	// Code is the server's own word, such as NoSuchKey.
	Code string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %q: status %d %s", e.Method, e.Key, e.Status, e.Code)
}

// Answer is what the server said beside the body.
type Answer struct {
	ETag string
	// CRC64 is the CRC-64/XZ of the whole object, if HasCRC64.
	CRC64    uint64
	HasCRC64 bool
}

// ReadRange fills p with the bytes of key that begin at offset.
func (c *Client) ReadRange(ctx context.Context, key string, offset int64, p []byte) (Answer, error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(p))-1)}}
	return c.read(ctx, key, header, http.StatusPartialContent, p)
}

// Read fills p with the whole of key, whose size is len(p).
func (c *Client) Read(ctx context.Context, key string, p []byte) (Answer, error) {
	return c.read(ctx, key, http.Header{}, http.StatusOK, p)
}

func (c *Client) read(ctx context.Context, key string, header http.Header, status int, p []byte) (Answer, error) {
	response, err := c.do(ctx, http.MethodGet, key, "", header, nil, 0)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != status {
		return Answer{}, statusError(http.MethodGet, key, response)
	}
	if response.ContentLength != int64(len(p)) {
		return Answer{}, fmt.Errorf("get %q: %d bytes are announced, %d were asked for", key, response.ContentLength, len(p))
	}
	if _, err := io.ReadFull(response.Body, p); err != nil {
		return Answer{}, fmt.Errorf("get %q: %w", key, err)
	}
	// The end of the body must be seen, or the connection is not used again.
	if n, err := response.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return Answer{}, fmt.Errorf("get %q: more came than was announced (%d bytes, %w)", key, n, err)
	}
	return answer(response), nil
}

func answer(response *http.Response) Answer {
	a := Answer{ETag: response.Header.Get("ETag")}
	if crc, err := strconv.ParseUint(response.Header.Get("X-Oss-Hash-Crc64ecma"), 10, 64); err == nil {
		a.CRC64, a.HasCRC64 = crc, true
	}
	return a
}

// do sends one request. query is the raw query, of which every parameter is one
// that the signature covers, in order of their names, except for listings, whose
// parameters it does not cover.
func (c *Client) do(ctx context.Context, method, key, query string, header http.Header, body io.Reader, size int64) (*http.Response, error) {
	target := c.base
	target.Path = "/" + key
	if c.pathStyle {
		target.Path = "/" + c.cfg.Bucket + "/" + key
	}
	target.RawQuery = query
	request := (&http.Request{
		Method: method, URL: &target, Host: target.Host, Header: header, ContentLength: size,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		request.Body = io.NopCloser(body)
	}
	if c.cfg.KeyID != "" {
		header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		header.Set("Authorization", "OSS "+c.cfg.KeyID+":"+
			signature(c.cfg.Secret, method, header, resource(c.cfg.Bucket, key, query)))
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", strings.ToLower(method), key, err)
	}
	return response, nil
}

// call sends a request whose answer is short, and reads all of it.
func (c *Client) call(ctx context.Context, method, key, query string, header http.Header, body io.Reader, size int64) ([]byte, Answer, error) {
	response, err := c.do(ctx, method, key, query, header, body, size)
	if err != nil {
		return nil, Answer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return nil, Answer{}, statusError(method, key, response)
	}
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, Answer{}, fmt.Errorf("%s %q: %w", strings.ToLower(method), key, err)
	}
	return b, answer(response), nil
}

func statusError(method, key string, response *http.Response) error {
	e := &StatusError{Method: method, Key: key, Status: response.StatusCode}
	var body struct{ Code string }
	b, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err == nil && xml.Unmarshal(b, &body) == nil {
		e.Code = body.Code
	}
	return e
}
