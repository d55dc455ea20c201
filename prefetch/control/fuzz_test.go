package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// Whatever a process writes into the buffer, the daemon answers with a frame or
// EINVAL, and what it sends as an answer is one JSON document.
func FuzzServeControl(f *testing.F) {
	for _, doc := range []string{`{"method":"echo","params":{"a":1}}`, `{"method":"hello"}`, `{"method":"big","params":{"bytes":20000}}`, `{}`, `nul`} {
		buf := make([]byte, BufferSize)
		n := frame{version: Version, kind: kindCall, payload: []byte(doc)}.encode(buf)
		f.Add(buf[:n], uint32(0))
	}
	f.Add([]byte("PAIL\x01\x02"), uint32(7))
	f.Add([]byte("PAIL\x02"), uint32(7))
	m := newTestMux(f, MuxConfig{}, nil)
	// A fuzzer would find the method that sleeps for years.
	delete(m.methods, "sleep")
	f.Fuzz(func(t *testing.T, data []byte, uid uint32) {
		in, out := make([]byte, BufferSize), make([]byte, BufferSize)
		copy(in, data)
		n, errno := m.ServeControl(context.Background(), Caller{UID: uid}, Command, in, out)
		if errno != 0 {
			if bytes.HasPrefix(in, []byte(magic)) {
				t.Fatalf("errno %v", errno)
			}
			return
		}
		a, err := decodeFrame(out[:n])
		if err != nil {
			t.Fatalf("the answer is no frame: %v", err)
		}
		switch a.kind {
		case kindLast:
			if a.offset == 0 && !json.Valid(a.payload) {
				t.Fatalf("the answer is no JSON: %q", a.payload)
			}
		case kindMore:
			drop := exchange(t, m, Caller{UID: uid}, frame{kind: kindDrop, cursor: a.cursor})
			if string(drop.payload) != `{"result":null}` {
				t.Fatalf("drop: %s", drop.payload)
			}
		default:
			t.Fatalf("kind %#x", a.kind)
		}
	})
}

// Whatever a daemon answers, the client ends with a result or an error.
func FuzzClient(f *testing.F) {
	buf := make([]byte, BufferSize)
	n := frame{version: Version, kind: kindLast, payload: []byte(`{"result":{"server":"pailfs"}}`)}.encode(buf)
	f.Add(bytes.Clone(buf[:n]), n)
	n = frame{version: Version, kind: kindMore, payload: []byte(`{"resul`)}.encode(buf)
	f.Add(bytes.Clone(buf[:n]), n)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		rounds := 0
		c := newClient("fuzz", func(buf []byte) (int, error) {
			if rounds++; rounds > 3 {
				return 0, errors.New("enough")
			}
			clear(buf)
			copy(buf, data)
			return n, nil
		})
		var h Hello
		_ = c.Call(context.Background(), "hello", nil, &h)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
