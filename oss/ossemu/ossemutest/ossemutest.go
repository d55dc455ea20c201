// Package ossemutest runs the emulator inside a test's own process.
package ossemutest

import (
	"bytes"
	"errors"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// Bucket is the bucket that [Start] makes when the configuration names none.
const Bucket = "test-bucket"

// The key pair that [Start] gives when the configuration has none.
const (
	AccessKeyID     = "test-access-key-id"
	AccessKeySecret = "test-access-key-secret"
)

// Emulator is a server that runs until the test ends.
type Emulator struct {
	// Server is the server itself: its faults, shape and counters.
	Server *ossemu.Server
	// Endpoint is http://127.0.0.1:PORT, to be used with path style.
	Endpoint string
	// AdminEndpoint is the administration address.
	AdminEndpoint   string
	AccessKeyID     string
	AccessKeySecret string
	// Bucket is the first bucket.
	Bucket string

	t   testing.TB
	cfg ossemu.Config
}

// Start opens and serves an emulator. A directory, a key pair and a bucket are
// made if cfg has none. It is closed, and its directory removed, when the test
// ends.
func Start(t testing.TB, cfg ossemu.Config) *Emulator {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if len(cfg.Credentials) == 0 {
		cfg.Credentials = []ossemu.Credential{{AccessKeyID: AccessKeyID, AccessKeySecret: AccessKeySecret}}
	}
	if len(cfg.Buckets) == 0 {
		cfg.Buckets = []string{Bucket}
	}
	e := &Emulator{
		t: t, cfg: cfg, Bucket: cfg.Buckets[0],
		AccessKeyID: cfg.Credentials[0].AccessKeyID, AccessKeySecret: cfg.Credentials[0].AccessKeySecret,
	}
	e.start("127.0.0.1:0")
	return e
}

func (e *Emulator) start(addr string) {
	e.t.Helper()
	server, err := ossemu.Open(e.cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	// Between two servers at one address the kernel may give the port to somebody's connection.
	for i := 0; i < 100 && errors.Is(err, syscall.EADDRINUSE); i++ {
		time.Sleep(100 * time.Millisecond)
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	admin := httptest.NewServer(server.Admin())
	e.t.Cleanup(func() {
		admin.Close()
		if err := server.Close(); err != nil {
			e.t.Errorf("close emulator: %v", err)
		}
		if err := <-served; err != nil {
			e.t.Errorf("serve emulator: %v", err)
		}
	})
	e.Server, e.Endpoint, e.AdminEndpoint = server, "http://"+l.Addr().String(), admin.URL
}

// Restart closes the server and opens another one over the same directory, at
// the same address.
func (e *Emulator) Restart() {
	e.t.Helper()
	if err := e.Server.Close(); err != nil {
		e.t.Fatal(err)
	}
	e.start(e.Endpoint[len("http://"):])
}

// Put stores an object in the first bucket past the protocol and returns its
// entity tag.
func (e *Emulator) Put(key string, content []byte) string {
	e.t.Helper()
	etag, err := e.Server.Put(e.Bucket, key, bytes.NewReader(content))
	if err != nil {
		e.t.Fatal(err)
	}
	return etag
}

// Get returns the content of an object in the first bucket past the protocol.
func (e *Emulator) Get(key string) []byte {
	e.t.Helper()
	var b bytes.Buffer
	if err := e.Server.Get(e.Bucket, key, &b); err != nil {
		e.t.Fatal(err)
	}
	return b.Bytes()
}

// Delete removes an object from the first bucket past the protocol.
func (e *Emulator) Delete(key string) {
	e.t.Helper()
	if err := e.Server.Delete(e.Bucket, key); err != nil {
		e.t.Fatal(err)
	}
}

// Keys returns the keys of the first bucket that begin with prefix, in order.
func (e *Emulator) Keys(prefix string) []string {
	e.t.Helper()
	keys, err := e.Server.Keys(e.Bucket, prefix)
	if err != nil {
		e.t.Fatal(err)
	}
	return keys
}

// Requests returns how many requests of an operation have been answered since
// the counters were reset, or of all operations if the name is empty.
func (e *Emulator) Requests(operation string) int64 {
	st := e.Server.Stats()
	if operation == "" {
		return st.Requests
	}
	return st.Operations[operation].Requests
}
