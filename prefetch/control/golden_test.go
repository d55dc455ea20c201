package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update", false, "rewrite the golden exchanges from what the mux answers")

// A script is one conversation of one caller, as testdata/golden keeps it. A
// client is tested with it by a fake ioctl that compares what the client sends
// and answers what is written; a daemon by sending what is written. The fake
// daemon's methods are those of testMethods; times do not matter.
type script struct {
	About  string `json:"about"`
	Caller Caller `json:"caller"`
	// Call and Params are what a client is asked to do, and Result or Error what
	// it must make of the answers. They are absent where no client would send the
	// frames.
	Call   string          `json:"call,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Setup are calls that were made before, by the same caller.
	Setup []setupCall `json:"setup,omitempty"`
	Steps []step      `json:"steps"`
}

// setupCall is a call whose frames are of no interest.
type setupCall struct {
	Call   string          `json:"call"`
	Params json.RawMessage `json:"params,omitempty"`
}

// params returns what a client passes as parameters.
func (s *script) params() any {
	if s.Params == nil {
		return nil
	}
	return s.Params
}

func compact(t *testing.T, dst *bytes.Buffer, doc json.RawMessage) {
	t.Helper()
	if err := json.Compact(dst, doc); err != nil {
		t.Error(err)
	}
}

// A step is one ioctl. Header and payload are what the buffer begins with; the
// rest of it is zero.
type step struct {
	Send    wireFrame `json:"send"`
	Receive wireFrame `json:"receive,omitzero"`
	// Errno is set when the ioctl fails.
	Errno string `json:"errno,omitempty"`
}

type wireFrame struct {
	// Header is 32 bytes in hexadecimal digits.
	Header string `json:"header,omitempty"`
	// Payload is text, for every payload is.
	Payload string `json:"payload,omitempty"`
}

func (w wireFrame) bytes(t *testing.T) []byte {
	t.Helper()
	header, err := hex.DecodeString(w.Header)
	if err != nil {
		t.Fatal(err)
	}
	return append(header, w.Payload...)
}

func wire(b []byte) wireFrame {
	return wireFrame{Header: hex.EncodeToString(b[:headerSize]), Payload: string(b[headerSize:])}
}

// goldenMux numbers its cursors, so that answers can be foreseen.
func goldenMux(t *testing.T) *Mux {
	m := newTestMux(t, MuxConfig{}, nil)
	var n uint64
	m.newCursor = func() (c cursor) {
		n++
		copy(c[:], "golden-c")
		binary.BigEndian.PutUint64(c[8:], n)
		return c
	}
	return m
}

func readScripts(t *testing.T) map[string]*script {
	t.Helper()
	paths, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	scripts := make(map[string]*script)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s script
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		scripts[path] = &s
	}
	return scripts
}

func writeScript(t *testing.T, path string, s *script) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// With -update the steps of scripts that make a call are recorded anew.
func record(t *testing.T, s *script) {
	m, stop := scriptMux(t, s)
	defer stop()
	s.Steps = nil
	c := newClient("golden", func(buf []byte) (int, error) {
		input := append([]byte(nil), buf...)
		length := binary.LittleEndian.Uint32(input[8:])
		n, errno := m.ServeControl(context.Background(), s.Caller, Command, input, buf)
		if errno != 0 {
			return 0, errno
		}
		s.Steps = append(s.Steps, step{Send: wire(input[:headerSize+length]), Receive: wire(buf[:n])})
		return int(n), nil
	})
	var result json.RawMessage
	err := c.Call(context.Background(), s.Call, s.params(), &result)
	s.Result, s.Error = nil, nil
	if err == nil {
		s.Result = result
	} else if !errors.As(err, &s.Error) {
		t.Fatal(err)
	}
	_ = m.Close()
}

func TestGoldenExchangesOfTheDaemon(t *testing.T) {
	for path, s := range readScripts(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if *update && s.Call != "" {
					record(t, s)
					writeScript(t, path, s)
				}
				m, stop := scriptMux(t, s)
				for i, step := range s.Steps {
					in, out := make([]byte, BufferSize), make([]byte, BufferSize)
					copy(in, step.Send.bytes(t))
					n, errno := m.ServeControl(t.Context(), s.Caller, Command, in, out)
					if errno != 0 || step.Errno != "" {
						if errno != syscall.EINVAL || step.Errno != "EINVAL" {
							t.Errorf("step %d: errno %v, want %q", i, errno, step.Errno)
						}
						continue
					}
					if *update && s.Call == "" {
						s.Steps[i].Receive = wire(out[:n])
						continue
					}
					if want := step.Receive.bytes(t); !bytes.Equal(out[:n], want) {
						t.Errorf("step %d: answered\n%q, want\n%q", i, out[:n], want)
					}
					if tail := bytes.TrimLeft(out[n:], "\x00"); len(tail) > 0 {
						t.Errorf("step %d: %d bytes after the answer are not zero", i, len(tail))
					}
				}
				if *update && s.Call == "" {
					writeScript(t, path, s)
				}
				_ = m.Close()
				stop()
			})
		})
	}
}

func TestGoldenExchangesOfTheClient(t *testing.T) {
	tested := 0
	for path, s := range readScripts(t) {
		if s.Call == "" {
			continue
		}
		tested++
		t.Run(filepath.Base(path), func(t *testing.T) {
			at := 0
			c := newClient("golden", func(buf []byte) (int, error) {
				if at == len(s.Steps) {
					t.Error("the client goes on after the last answer")
					return 0, syscall.EIO
				}
				step := s.Steps[at]
				at++
				want := step.Send.bytes(t)
				if !bytes.Equal(buf[:len(want)], want) || len(bytes.TrimLeft(buf[len(want):], "\x00")) > 0 {
					t.Errorf("step %d: sent\n%q, want\n%q", at-1, bytes.TrimRight(buf, "\x00"), want)
				}
				clear(buf)
				return copy(buf, step.Receive.bytes(t)), nil
			})
			var result, want bytes.Buffer
			var raw json.RawMessage
			err := c.Call(t.Context(), s.Call, s.params(), &raw)
			if s.Error != nil {
				if !errors.Is(err, s.Error) {
					t.Errorf("the call ended with %v, want %v", err, s.Error)
				}
			} else {
				compact(t, &result, raw)
				compact(t, &want, s.Result)
				if err != nil || result.String() != want.String() {
					t.Errorf("the call gave %.80s, %v, want %.80s", &result, err, &want)
				}
			}
			if at != len(s.Steps) {
				t.Errorf("the client stopped after %d of %d steps", at, len(s.Steps))
			}
		})
	}
	if tested < 5 {
		t.Errorf("only %d golden files test the client", tested)
	}
}

func TestProtocolDocumentNamesEveryGoldenFile(t *testing.T) {
	doc, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for path := range readScripts(t) {
		if !strings.Contains(string(doc), filepath.Base(path)) {
			t.Errorf("PROTOCOL.md does not mention %s", filepath.Base(path))
		}
	}
}
