package ossemu_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// client speaks raw HTTP to an emulator, signing with version 1. It is written
// from the rules of the protocol and shares nothing with the server.
type client struct {
	t    testing.TB
	emu  *ossemutest.Emulator
	http *http.Client
}

func start(t testing.TB, cfg ossemu.Config) *client {
	t.Helper()
	return &client{t: t, emu: ossemutest.Start(t, cfg), http: newHTTPClient(t)}
}

func newHTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: noRedirect}
}

// answer is a response that has been read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	// err is what cut the answer short.
	err error
}

// call is one request.
type call struct {
	method string
	bucket string
	key    string
	// query is as it goes over the wire, without "?".
	query  string
	header map[string]string
	body   []byte
	// anonymous leaves the signature out.
	anonymous bool
	// host replaces the Host header and means virtual host style.
	host string
}

// subresources are the parameters that version 1 signs, as far as the tests use
// them.
var subresources = strings.Fields(`acl append bucketInfo continuation-token cors delete lifecycle live location objectMeta partNumber
	position logging restore sequential stat symlink tagging uploadId uploads versioning versions website policy
	response-content-type response-content-disposition response-cache-control response-expires response-content-encoding
	response-content-language x-oss-traffic-limit x-oss-process`)

func (c *client) sign(r *http.Request, q call) {
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var names []string
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-oss-") {
			names = append(names, lower)
		}
	}
	sort.Strings(names)
	oss := ""
	for _, name := range names {
		oss += name + ":" + r.Header.Get(name) + "\n"
	}
	resource := "/"
	if q.bucket != "" {
		resource = "/" + q.bucket + "/" + q.key
	}
	var signed []string
	for field := range strings.SplitSeq(q.query, "&") {
		name, value, _ := strings.Cut(field, "=")
		for _, s := range subresources {
			if s == name {
				if v, err := url.QueryUnescape(value); err == nil && v != "" {
					name += "=" + v
				}
				signed = append(signed, name)
			}
		}
	}
	sort.Strings(signed)
	if len(signed) > 0 {
		resource += "?" + strings.Join(signed, "&")
	}
	text := strings.Join([]string{
		q.method, r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"), r.Header.Get("Date"), oss + resource,
	}, "\n")
	mac := hmac.New(sha1.New, []byte(c.emu.AccessKeySecret))
	mac.Write([]byte(text))
	r.Header.Set("Authorization", "OSS "+c.emu.AccessKeyID+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// request builds the request of a call.
func (c *client) request(q call) *http.Request {
	c.t.Helper()
	path := "/" + q.key
	if q.host == "" && q.bucket != "" {
		path = "/" + q.bucket + path
	}
	r, err := http.NewRequest(q.method, c.emu.Endpoint, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.URL.Path = path // neither the client nor the server cleans it
	r.URL.RawQuery = q.query
	if q.host != "" {
		r.Host = q.host
	}
	if q.body != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(q.body)), int64(len(q.body))
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	if !q.anonymous {
		c.sign(r, q)
	}
	return r
}

// do sends a call and reads the answer. A failure to get one is in err.
func (c *client) do(q call) answer {
	c.t.Helper()
	resp, err := c.http.Do(c.request(q))
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, err}
}

// want sends a call and fails unless the status is as said.
func (c *client) want(status int, q call) answer {
	c.t.Helper()
	a := c.do(q)
	if a.err != nil {
		c.t.Fatalf("%s %s/%s?%s: %v", q.method, q.bucket, q.key, q.query, a.err)
	}
	if a.status != status {
		c.t.Fatalf("%s %s/%s?%s: status %d, want %d\n%s", q.method, q.bucket, q.key, q.query, a.status, status, a.body)
	}
	return a
}

// refused sends a call and fails unless it is refused with that status and code.
func (c *client) refused(status int, code string, q call) answer {
	c.t.Helper()
	a := c.want(status, q)
	if got := a.code(c.t); got != code {
		c.t.Fatalf("%s %s/%s?%s: code %q, want %q\n%s", q.method, q.bucket, q.key, q.query, got, code, a.body)
	}
	return a
}

// code is the code of an error document, in the body or in the header of a HEAD.
func (a answer) code(t testing.TB) string {
	t.Helper()
	doc := a.body
	if h := a.header.Get("x-oss-err"); h != "" {
		var err error
		if doc, err = base64.StdEncoding.DecodeString(h); err != nil {
			t.Fatalf("x-oss-err: %v", err)
		}
	}
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if err := xml.Unmarshal(doc, &e); err != nil {
		t.Fatalf("error document: %v\n%s", err, doc)
	}
	return e.Code
}

// decode reads the XML of an answer.
func (a answer) decode(t testing.TB, v any) {
	t.Helper()
	if err := xml.Unmarshal(a.body, v); err != nil {
		t.Fatalf("document: %v\n%s", err, a.body)
	}
	if got := a.header.Get("Content-Length"); got != strconv.Itoa(len(a.body)) {
		t.Fatalf("Content-Length %q of a document of %d bytes", got, len(a.body))
	}
}

// object is a call on a key of the first bucket.
func (c *client) object(method, key, query string) call {
	return call{method: method, bucket: c.emu.Bucket, key: key, query: query}
}

func (c *client) put(key string, body []byte) answer {
	c.t.Helper()
	q := c.object("PUT", key, "")
	q.body = body
	return c.want(200, q)
}

func (c *client) get(key string) answer {
	c.t.Helper()
	return c.want(200, c.object("GET", key, ""))
}

func withHeader(q call, header ...string) call {
	q.header = make(map[string]string)
	for i := 0; i < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	return q
}

func withBody(q call, body string) call {
	q.body = []byte(body)
	return q
}

// withMD5 adds a body and its digest.
func withMD5(q call, body string) call {
	sum := md5.Sum([]byte(body))
	q.header = map[string]string{"Content-MD5": base64.StdEncoding.EncodeToString(sum[:])}
	return withBody(q, body)
}

// pattern is n bytes that tell their offset.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8) ^ byte(i)*31
	}
	return b
}

// rawConn is one connection that repeats a request, at the least cost for the
// client.
type rawConn struct {
	conn    net.Conn
	r       *bufio.Reader
	request []byte
	discard []byte
}

// dialRaw prepares a connection for one request. The request must not have a
// body.
func (c *client) dialRaw(q call) (*rawConn, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.emu.Endpoint, "http://"))
	if err != nil {
		return nil, err
	}
	r := c.request(q)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.URL.Host)
	if err := r.Header.Write(&b); err != nil {
		return nil, err
	}
	if r.Body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.body))
	}
	b.WriteString("\r\n")
	b.Write(q.body)
	return &rawConn{conn, bufio.NewReaderSize(conn, 64<<10), b.Bytes(), make([]byte, 1<<20)}, nil
}

// once sends the request and reads the answer, returning the length of its body.
func (c *rawConn) once(status string) (int, error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 "+status)) {
			return 0, fmt.Errorf("answer %q", line)
		}
		if len(line) <= 2 {
			break
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(rest))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("answer without Content-Length")
	}
	left := length
	n := min(left, c.r.Buffered())
	if _, err := c.r.Discard(n); err != nil {
		return 0, err
	}
	for left -= n; left > 0; left -= n {
		var err error
		if n, err = c.conn.Read(c.discard[:min(left, len(c.discard))]); err != nil {
			return 0, err
		}
	}
	return length, nil
}
