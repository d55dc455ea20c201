package oss

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pipeNetwork is a listener and its dialer without sockets, so that client and
// server can live in a synctest bubble, where time is simulated.
type pipeNetwork struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	dials  atomic.Int32
}

func newPipeNetwork() *pipeNetwork {
	return &pipeNetwork{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipeNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		p.dials.Add(1)
		return client, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipeNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeNetwork) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipeNetwork) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// bubble is a client and the server it speaks to, inside a synctest bubble.
type bubble struct {
	*testing.T
	client  *Client
	network *pipeNetwork
	mu      sync.Mutex
	seen    []*http.Request
}

// newBubble serves handle, which is told how many requests came before.
func newBubble(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, before int), configure ...func(*Config)) *bubble {
	t.Helper()
	b := &bubble{T: t, network: newPipeNetwork()}
	var handlers sync.WaitGroup
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		b.mu.Lock()
		before := len(b.seen)
		b.seen = append(b.seen, r.Clone(context.Background()))
		b.mu.Unlock()
		handle(w, r, before)
	})}
	// A handler that has not read its request's body does not see the client go.
	base, endHandlers := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return base }
	served := make(chan struct{})
	go func() {
		_ = server.Serve(b.network)
		close(served)
	}()
	cfg := Config{Endpoint: "http://192.0.2.1", Bucket: "bucket"}
	for _, f := range configure {
		f(&cfg)
	}
	var err error
	if b.client, err = Open(cfg, nil, nil, quietLog()); err != nil {
		t.Fatal(err)
	}
	b.client.transport.DialContext = b.network.dial
	t.Cleanup(func() {
		_ = b.client.Close()
		_ = server.Close()
		endHandlers()
		<-served
		handlers.Wait()
		time.Sleep(time.Second) // the server lingers half a second over a connection it closes
	})
	return b
}

// requests returns what the server has seen.
func (b *bubble) requests() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*http.Request(nil), b.seen...)
}

// object is the object that serveObject serves.
var object = Object{Key: "dir/object", ETag: "ABCDEF", Size: 1 << 20, ModTime: time.Unix(1000, 0).UTC()}

// objectContent is the content of object. It must not be changed.
var objectContent = sync.OnceValue(func() []byte {
	content := make([]byte, object.Size)
	for i := range content {
		content[i] = byte(i*7 + i>>8)
	}
	return content
})

// answerRange writes the head of a right answer and returns the asked bytes.
func answerRange(w http.ResponseWriter, r *http.Request) []byte {
	from, until := askedRange(r)
	w.Header().Set("ETag", `"`+object.ETag+`"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, until-1, object.Size))
	w.Header().Set("Content-Length", strconv.FormatInt(until-from, 10))
	w.Header().Set("X-Oss-Hash-Crc64ecma", "42")
	w.WriteHeader(http.StatusPartialContent)
	return objectContent()[from:until]
}

func askedRange(r *http.Request) (from, until int64) {
	first, last, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
	from, _ = strconv.ParseInt(first, 10, 64)
	until, _ = strconv.ParseInt(last, 10, 64)
	return from, until + 1
}

// serveRange answers a ranged GET rightly.
func serveRange(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answerRange(w, r)) }

// hang does not answer until the client has gone.
func hang(r *http.Request) { <-r.Context().Done() }

// abort breaks the connection.
func abort() { panic(http.ErrAbortHandler) }

// refuse answers with an error of OSS.
func refuse(w http.ResponseWriter, status int, code string) {
	text := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>%s</Code><Message>Message of %s.</Message><RequestId>5C3D9175B6FC201293AD4E0B</RequestId><HostId>bucket.oss</HostId></Error>`, code, code)
	w.Header().Set("X-Oss-Request-Id", "5C3D9175B6FC201293AD4E0B")
	w.Header().Set("X-Oss-Err", base64.StdEncoding.EncodeToString([]byte(text))) // for HEAD, which has no body
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// readSome reads a little of the object.
func (b *bubble) readSome(ctx context.Context, class Class) error {
	b.Helper()
	buffer := make([]byte, 100)
	_, err := b.client.As(class).ReadRange(ctx, RangeRequest{Object: object, Offset: 1000, Buffer: buffer})
	if err == nil && string(buffer) != string(objectContent()[1000:1100]) {
		b.Error("the bytes are wrong")
	}
	return err
}

// readAll reads the whole object as class does, and fails the test unless it is
// right or err is not nil.
func (b *bubble) readAll(ctx context.Context, class Class) error {
	b.Helper()
	buffer := make([]byte, object.Size)
	announced := 0
	_, err := b.client.As(class).ReadRange(ctx, RangeRequest{Object: object, Buffer: buffer, Arrived: func(n int) {
		if n <= announced {
			b.Errorf("announced %d after %d", n, announced)
		}
		announced = n
	}})
	content := objectContent()
	if string(buffer[:announced]) != string(content[:announced]) {
		b.Errorf("the %d announced bytes are wrong", announced)
	}
	if err == nil && announced != len(buffer) {
		b.Errorf("the read succeeded, but %d bytes were announced", announced)
	}
	return err
}
