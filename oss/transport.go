package oss

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
	// idleTimeout is below the time after which OSS closes an idle connection, so
	// that requests seldom meet one that is being closed.
	idleTimeout = 45 * time.Second
	// readBuffer holds the head of an answer and a 4 KiB body in one read. Large
	// reads go past it into the caller's memory.
	readBuffer = 16 << 10
)

// newTransport returns a transport for many parallel ranged GETs: HTTP/1.1, as
// many connections kept as may be opened, no decompression, no proxy but the
// configured one.
//
// The transport dials on its own time: a cancelled request leaves its dial
// behind for a later one. life ends such dials, too.
func newTransport(life context.Context, cfg *Config) (*http.Transport, error) {
	connections := cfg.MaxConnections
	if connections == 0 {
		connections = defaultMaxConnections
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			return dialer.DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout: tlsTimeout,
		MaxIdleConnsPerHost: connections,
		MaxConnsPerHost:     connections,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
		ReadBufferSize:      readBuffer,
		Protocols:           new(http.Protocols),
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		// An answer's head is some hundred bytes, or a few KiB with user metadata.
		MaxResponseHeaderBytes: 64 << 10,
	}
	// HTTP/2 would put all requests on one connection, and OSS limits bandwidth by
	// connection.
	t.Protocols.SetHTTP1(true)
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authorities: no certificate in %s", cfg.CAFile)
		}
	}
	if cfg.Proxy != "" {
		proxy, err := url.Parse(cfg.Proxy)
		if err != nil {
			return nil, fmt.Errorf("parse proxy: %w", err)
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	return t, nil
}

// sdkTransport stands between the SDK and the network.
type sdkTransport struct {
	next http.RoundTripper
	// anonymous removes the signature that the SDK makes of empty keys.
	anonymous bool
}

// maxRefusal bounds the text of an error, which the SDK reads to its end whatever
// its length.
const maxRefusal = 64 << 10

// RoundTrip implements http.RoundTripper.
func (t sdkTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.anonymous {
		plain := *req
		plain.Header = req.Header.Clone()
		plain.Header.Del("Authorization")
		req = &plain
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode/100 != 2 {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxRefusal), resp.Body}
	}
	return resp, err
}
