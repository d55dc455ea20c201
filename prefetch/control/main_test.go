package control

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// daemonEnv makes the test binary serve a mount at the directory it names,
// instead of running tests, until it is killed.
const daemonEnv = "PAILFS_CONTROL_TEST_DAEMON"

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonEnv); dir != "" {
		os.Exit(serveUntilKilled(dir))
	}
	os.Exit(mounttest.Main(func() int {
		goleak.VerifyTestMain(m) // exits
		return 0
	}))
}

var (
	root     = Caller{UID: 0, GID: 0, PID: 100}
	owner    = Caller{UID: 1000, GID: 1000, PID: 101}
	stranger = Caller{UID: 2000, GID: 2000, PID: 102}
)

type bigParams struct {
	Bytes int `json:"bytes"`
}

type sleepParams struct {
	Milliseconds int `json:"milliseconds"`
}

// testMethods registers methods that behave well and badly. Methods called
// sleep report the end of their context to canceled.
func testMethods(m *Mux, canceled chan<- error) {
	Handle(m, "echo", Anyone, func(_ context.Context, _ Caller, p map[string]any) (map[string]any, error) {
		return p, nil
	})
	Handle(m, "whoami", Anyone, func(_ context.Context, c Caller, _ struct{}) (Caller, error) {
		return c, nil
	})
	Handle(m, "secret", Owner, func(context.Context, Caller, struct{}) (string, error) {
		return "open", nil
	})
	Handle(m, "big", Anyone, func(_ context.Context, _ Caller, p bigParams) (string, error) {
		const alphabet = "abcdefghijklmnopqrstuvwxyz"
		return strings.Repeat(alphabet, p.Bytes/len(alphabet)+1)[:p.Bytes], nil
	})
	Handle(m, "sleep", Anyone, func(ctx context.Context, _ Caller, p sleepParams) (string, error) {
		select {
		case <-time.After(time.Duration(p.Milliseconds) * time.Millisecond):
			return "slept", nil
		case <-ctx.Done():
			if canceled != nil {
				canceled <- ctx.Err()
			}
			return "", fmt.Errorf("sleep: %w", ctx.Err())
		}
	})
	Handle(m, "fail", Anyone, func(context.Context, Caller, struct{}) (struct{}, error) {
		return struct{}{}, fmt.Errorf("find %q: %w", "x", os.ErrNotExist)
	})
	Handle(m, "missing", Anyone, func(context.Context, Caller, struct{}) (struct{}, error) {
		return struct{}{}, fmt.Errorf("look: %w", Errorf("not-found", "no object %q", "x"))
	})
	Handle(m, "panic", Anyone, func(context.Context, Caller, struct{}) (int, error) {
		panic("a mistake")
	})
	Handle(m, "vanish", Anyone, func(context.Context, Caller, struct{}) (int, error) {
		goexit()
		return 0, nil
	})
	Handle(m, "unencodable", Anyone, func(context.Context, Caller, struct{}) (any, error) {
		return func() {}, nil
	})
}

// newTestMux returns a mux with testMethods whose owner is user 1000. It is
// closed at the end of the test.
func newTestMux(t testing.TB, cfg MuxConfig, canceled chan<- error) *Mux {
	t.Helper()
	cfg.OwnerUID = owner.UID
	cfg.Version = "1.2.3"
	m := NewMux(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	testMethods(m, canceled)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// clientOf returns a client that reaches m without a kernel between them.
func clientOf(m *Mux, caller Caller) *Client {
	return newClient("memory", func(buf []byte) (int, error) {
		input := append([]byte(nil), buf...)
		n, errno := m.ServeControl(context.Background(), caller, Command, input, buf)
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	})
}

// exchange sends f to m and returns the answering frame.
func exchange(t testing.TB, m *Mux, caller Caller, f frame) frame {
	t.Helper()
	in, out := make([]byte, BufferSize), make([]byte, BufferSize)
	if f.version == 0 {
		f.version = Version
	}
	f.encode(in)
	n, errno := m.ServeControl(context.Background(), caller, Command, in, out)
	if errno != 0 {
		t.Fatalf("errno %v", errno)
	}
	a, err := decodeFrame(out[:n])
	if err != nil {
		t.Fatalf("the answer is no frame: %v", err)
	}
	return a
}

// call returns a frame that calls method.
func callFrame(method, params string) frame {
	doc := `{"method":"` + method + `"}`
	if params != "" {
		doc = `{"method":"` + method + `","params":` + params + `}`
	}
	return frame{kind: kindCall, payload: []byte(doc)}
}
