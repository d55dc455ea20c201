package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pailfs/pailfs/prefetch/budget"
)

func goexit() { runtime.Goexit() }

func TestCommandIsTheNumberInTheProtocolDocument(t *testing.T) {
	if Command != 0xFFF870F5 {
		t.Errorf("Command is %#x, want 0xFFF870F5", Command)
	}
	doc, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "0xFFF870F5") {
		t.Error("PROTOCOL.md does not name the number")
	}
}

func TestCallReturnsTheResult(t *testing.T) {
	c := clientOf(newTestMux(t, MuxConfig{}, nil), stranger)
	in := map[string]any{"path": "a/<b>&c", "n": 1.5, "list": []any{"x", nil, true}}
	var out map[string]any
	if err := c.Call(t.Context(), "echo", in, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	var who Caller
	if err := c.Call(t.Context(), "whoami", nil, &who); err != nil {
		t.Fatal(err)
	}
	if who != stranger {
		t.Errorf("the method saw caller %v, want %v", who, stranger)
	}
	if err := c.Call(t.Context(), "whoami", struct{}{}, nil); err != nil {
		t.Errorf("a caller that wants no result got %v", err)
	}
}

func TestHelloListsWhatTheCallerMayCall(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	for caller, want := range map[Caller]bool{root: true, owner: true, stranger: false} {
		var h Hello
		if err := clientOf(m, caller).Call(t.Context(), "hello", nil, &h); err != nil {
			t.Fatal(err)
		}
		if h.Server != "pailfs" || h.Protocol != 1 || h.Version != "1.2.3" {
			t.Errorf("hello is %+v", h)
		}
		got := false
		for _, name := range h.Methods {
			got = got || name == "secret"
		}
		if got != want {
			t.Errorf("user %d is told of the owner's method: %v, want %v", caller.UID, got, want)
		}
	}
}

func TestOnlyRootAndOwnerMayCallOwnerMethods(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	for _, caller := range []Caller{root, owner} {
		var s string
		if err := clientOf(m, caller).Call(t.Context(), "secret", nil, &s); err != nil || s != "open" {
			t.Errorf("user %d got %q, %v", caller.UID, s, err)
		}
	}
	err := clientOf(m, stranger).Call(t.Context(), "secret", nil, nil)
	if !errors.Is(err, &Error{Code: CodeRefused}) {
		t.Errorf("a stranger got %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), "only root and user 1000 may") {
		t.Errorf("the refusal does not say who may: %v", err)
	}
}

func TestFailuresHaveTheirCode(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	c := clientOf(m, stranger)
	for _, test := range []struct {
		method string
		params any
		code   Code
		says   string
	}{
		{"nothing", nil, CodeUnknownMethod, `no method "nothing"`},
		{"", nil, CodeUnknownMethod, `no method ""`},
		{"big", map[string]any{"bites": 1}, CodeBadRequest, `unknown field "bites"`},
		{"big", []int{1}, CodeBadRequest, "array"},
		{"big", map[string]any{"bytes": "many"}, CodeBadRequest, "string"},
		{"fail", nil, CodeFailed, `find "x": file does not exist`},
		{"missing", nil, "not-found", `no object "x"`},
		{"panic", nil, CodeInternal, "mistake in the daemon"},
		{"vanish", nil, CodeInternal, "mistake in the daemon"},
		{"unencodable", nil, CodeInternal, "encode result"},
	} {
		err := c.Call(t.Context(), test.method, test.params, nil)
		if !errors.Is(err, &Error{Code: test.code}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s(%v) is %v, want code %s saying %q", test.method, test.params, err, test.code, test.says)
		}
	}
	if got := testutil.ToFloat64(m.metrics.panics); got != 2 {
		t.Errorf("%v panics were counted, want 2", got)
	}
	if err := c.Call(t.Context(), "echo", nil, nil); err != nil {
		t.Errorf("after the panics: %v", err)
	}
}

func TestRequestsThatAreNotOneStrictDocumentAreRefused(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	for _, doc := range []string{
		``, `{`, `{"method":"echo"`, `[]`, `"echo"`, `7`,
		`{"method":"echo"} {}`, `{"method":"echo"},`, `{"method":"echo","extra":1}`,
		`{"method":7}`, "{\"method\":\"echo\",\"params\":{\"a\":\"\xff\"}}", "\x00",
		strings.Repeat("[", 16000),
	} {
		a := exchange(t, m, root, frame{kind: kindCall, payload: []byte(doc)})
		var got answer
		if err := json.Unmarshal(a.payload, &got); err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		if a.kind != kindLast || got.Error == nil || got.Error.Code != CodeBadRequest {
			t.Errorf("%.40q is answered %#x %s", doc, a.kind, a.payload)
		}
	}
}

func TestForeignIoctlsAreENOTTYAndForeignBuffersEINVAL(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	ok := make([]byte, BufferSize)
	frame{version: Version, kind: kindCall}.encode(ok)
	for _, test := range []struct {
		name   string
		cmd    uint32
		input  []byte
		output []byte
		want   syscall.Errno
	}{
		{"FS_IOC_GETFLAGS", 0x80086601, nil, make([]byte, 8), syscall.ENOTTY},
		{"our type, other number", Command + 1, ok, make([]byte, BufferSize), syscall.ENOTTY},
		{"our number, other size", Command - 8<<16, ok, make([]byte, BufferSize), syscall.ENOTTY},
		{"short input", Command, ok[:100], make([]byte, BufferSize), syscall.EINVAL},
		{"no output", Command, ok, nil, syscall.EINVAL},
		{"zeros", Command, make([]byte, BufferSize), make([]byte, BufferSize), syscall.EINVAL},
	} {
		if n, errno := m.ServeControl(t.Context(), root, test.cmd, test.input, test.output); errno != test.want || n != 0 {
			t.Errorf("%s: %d, %v, want %v", test.name, n, errno, test.want)
		}
	}
}

func TestAnswerClearsTheRestOfTheBuffer(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	in, out := make([]byte, BufferSize), make([]byte, BufferSize)
	for i := range out {
		out[i] = 'S' // what another request left in the buffer
	}
	f := callFrame("secret", "")
	f.version = Version
	f.encode(in)
	n, errno := m.ServeControl(t.Context(), root, Command, in, out)
	if errno != 0 {
		t.Fatal(errno)
	}
	for i, b := range out[n:] {
		if b != 0 {
			t.Fatalf("byte %d is %q", int(n)+i, b)
		}
	}
}

func TestHeaderMistakesAreAnswered(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	for _, test := range []struct {
		name string
		edit func(b []byte)
		code Code
	}{
		{"newer version", func(b []byte) { b[4] = 2; b[6] = 9; b[11] = 0xff }, CodeVersion},
		{"version zero", func(b []byte) { b[4] = 0 }, CodeVersion},
		{"reserved bits", func(b []byte) { b[7] = 1 }, CodeBadRequest},
		{"length beyond the buffer", func(b []byte) { b[9] = 0x40 }, CodeBadRequest},
		{"enormous length", func(b []byte) { b[11] = 0xff }, CodeBadRequest},
		{"kind zero", func(b []byte) { b[5] = 0 }, CodeBadRequest},
		{"an answer's kind", func(b []byte) { b[5] = 0x81 }, CodeBadRequest},
		{"unknown cursor", func(b []byte) { b[5] = 2 }, CodeStaleCursor},
		{"drop of an unknown cursor", func(b []byte) { b[5] = 3 }, CodeStaleCursor},
	} {
		in, out := make([]byte, BufferSize), make([]byte, BufferSize)
		f := callFrame("echo", "")
		f.version = Version
		f.encode(in)
		test.edit(in)
		n, errno := m.ServeControl(t.Context(), root, Command, in, out)
		if errno != 0 {
			t.Errorf("%s: %v", test.name, errno)
			continue
		}
		a, err := decodeFrame(out[:n])
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got answer
		if err := json.Unmarshal(a.payload, &got); err != nil || got.Error == nil || got.Error.Code != test.code {
			t.Errorf("%s: %s, want code %s", test.name, a.payload, test.code)
		}
	}
}

func TestVersionsThatDifferAreSaid(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	newer := clientOf(m, root)
	newer.version = 2
	err := newer.Call(t.Context(), "echo", nil, nil)
	if !errors.Is(err, &Error{Code: CodeVersion, Message: "daemon speaks protocol version 1, client 2"}) {
		t.Errorf("a newer client got %v", err)
	}
	older := newClient("newer daemon", func(buf []byte) (int, error) {
		return frame{version: 2, kind: kindLast, payload: []byte("whatever version 2 says")}.encode(buf), nil
	})
	err = older.Call(t.Context(), "echo", nil, nil)
	if !errors.Is(err, &Error{Code: CodeVersion, Message: "daemon speaks protocol version 2, client 1"}) {
		t.Errorf("an older client got %v", err)
	}
}

func TestLongAnswerArrivesInPieces(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	c := clientOf(m, stranger)
	// {"result":"…"} adds 13 bytes: the sizes lie around the ends of pieces.
	for _, size := range []int{0, 1, MaxPayload - 14, MaxPayload - 13, MaxPayload - 12, 2*MaxPayload - 13, 1 << 20} {
		var got string
		if err := c.Call(t.Context(), "big", bigParams{size}, &got); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if len(got) != size || strings.Trim(got, "abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("%d bytes arrived as %d", size, len(got))
		}
		if size > 25 && got[26:52] != "abcdefghijklmnopqrstuvwxyz" {
			t.Errorf("%d bytes arrived garbled", size)
		}
	}
	assertNothingHeld(t, m)
}

func assertNothingHeld(t testing.TB, m *Mux) {
	t.Helper()
	m.handlers.Wait() // a call is answered before what was taken for its request is given back
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.calls) != 0 {
		t.Errorf("%d calls are held after all", len(m.mu.calls))
	}
	for k := range budget.Kinds {
		if u := m.cfg.Ledger.Use(k); u.Used != 0 {
			t.Errorf("%v are held after all calls: %+v", k, u)
		}
	}
	if r, s := testutil.ToFloat64(m.metrics.running), testutil.ToFloat64(m.metrics.stored); r != 0 || s != 0 {
		t.Errorf("gauges are %v and %v", r, s)
	}
}

// Who fetches an answer in pieces so slowly that it is given up is told that.
func TestAnswerThatIsGivenUpBetweenItsPiecesIsStale(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	c := clientOf(m, root)
	whole := c.exchange
	c.exchange = func(buf []byte) (int, error) {
		if f, err := decodeFrame(buf); err == nil && f.kind == kindNext {
			exchange(t, m, root, frame{kind: kindDrop, cursor: f.cursor})
		}
		return whole(buf)
	}
	var e *Error
	if err := c.Call(t.Context(), "big", json.RawMessage(`{"bytes":40000}`), nil); !errors.As(err, &e) || e.Code != CodeStaleCursor {
		t.Errorf("%.200v, want %s", err, CodeStaleCursor)
	}
	assertNothingHeld(t, m)
}

func TestPieceMayBeFetchedAgain(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	first := exchange(t, m, root, callFrame("big", `{"bytes":40000}`))
	if first.kind != kindMore || len(first.payload) != MaxPayload {
		t.Fatalf("the first piece is %#x with %d bytes", first.kind, len(first.payload))
	}
	next := frame{kind: kindNext, cursor: first.cursor, offset: MaxPayload}
	one := exchange(t, m, root, next)
	two := exchange(t, m, root, next)
	if string(one.payload) != string(two.payload) || one.offset != MaxPayload || one.kind != kindMore {
		t.Error("the same piece differs the second time")
	}
	beyond := exchange(t, m, root, frame{kind: kindNext, cursor: first.cursor, offset: 40013})
	if !strings.Contains(string(beyond.payload), "beyond the answer") {
		t.Errorf("an offset beyond the end gave %.80s", beyond.payload)
	}
	last := exchange(t, m, root, frame{kind: kindNext, cursor: first.cursor, offset: 2 * MaxPayload})
	if last.kind != kindLast || len(last.payload) != 40013-2*MaxPayload {
		t.Errorf("the last piece is %#x with %d bytes", last.kind, len(last.payload))
	}
	stale := exchange(t, m, root, next)
	if !strings.Contains(string(stale.payload), string(CodeStaleCursor)) {
		t.Errorf("a piece after the last gave %.80s", stale.payload)
	}
	assertNothingHeld(t, m)
}

func TestCursorOfOneUserIsStaleForAnother(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	first := exchange(t, m, owner, callFrame("big", `{"bytes":20000}`))
	for _, thief := range []Caller{stranger, root} {
		for _, k := range []kind{kindNext, kindDrop} {
			a := exchange(t, m, thief, frame{kind: k, cursor: first.cursor, offset: MaxPayload})
			if !strings.Contains(string(a.payload), string(CodeStaleCursor)) {
				t.Errorf("user %d, kind %d: %.80s", thief.UID, k, a.payload)
			}
		}
	}
	sibling := owner
	sibling.PID++
	a := exchange(t, m, sibling, frame{kind: kindNext, cursor: first.cursor, offset: MaxPayload})
	if a.kind != kindLast {
		t.Errorf("another process of the same user got %.80s", a.payload)
	}
}

func TestWaitingCallIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{}, nil)
		waits := 0
		c := newClient("memory", func(buf []byte) (int, error) {
			began := time.Now()
			input := append([]byte(nil), buf...)
			n, errno := m.ServeControl(context.Background(), root, Command, input, buf)
			if took := time.Since(began); took >= time.Second {
				t.Errorf("one ioctl took %v", took)
			}
			if kind(buf[5]) == kindWait {
				waits++
			}
			if errno != 0 {
				return 0, errno
			}
			return int(n), nil
		})
		var got string
		began := time.Now()
		if err := c.Call(t.Context(), "sleep", sleepParams{60_100}, &got); err != nil {
			t.Fatal(err)
		}
		if got != "slept" || time.Since(began) != 60_100*time.Millisecond || waits != 75 {
			t.Errorf("got %q after %v and %d waits", got, time.Since(began), waits)
		}
		assertNothingHeld(t, m)
		_ = m.Close()
	})
}

func TestContextEndsTheCallAtOnceAndTheMethodSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled := make(chan error, 1)
		m := newTestMux(t, MuxConfig{}, canceled)
		c := clientOf(m, stranger)
		ctx, cancel := context.WithTimeout(t.Context(), 1234*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := c.Call(ctx, "sleep", sleepParams{60_000}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 1234*time.Millisecond {
			t.Errorf("the call ended after %v with %v", time.Since(began), err)
		}
		if err := <-canceled; !errors.Is(err, context.Canceled) || time.Since(began) > 2*time.Second {
			t.Errorf("the method was told %v after %v", err, time.Since(began))
		}
		_ = c.Close()
		synctest.Wait()
		assertNothingHeld(t, m)
		_ = m.Close()
	})
}

func TestInterruptedIoctlAnswersWaitAndKeepsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{}, nil)
		interrupted, cancel := context.WithCancel(t.Context())
		cancel()
		in, out := make([]byte, BufferSize), make([]byte, BufferSize)
		f := callFrame("sleep", `{"milliseconds":500}`)
		f.version = Version
		f.encode(in)
		n, errno := m.ServeControl(interrupted, root, Command, in, out)
		if errno != 0 {
			t.Fatalf("an interrupt gave %v; the client would repeat a call that runs", errno)
		}
		a, err := decodeFrame(out[:n])
		if err != nil || a.kind != kindWait {
			t.Fatalf("answered %#x, %v", a.kind, err)
		}
		if a := exchange(t, m, root, frame{kind: kindNext, cursor: a.cursor}); string(a.payload) != `{"result":"slept"}` {
			t.Errorf("then %s", a.payload)
		}
		_ = m.Close()
	})
}

func TestCallNobodyAsksAfterIsCancelledAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled := make(chan error, 1)
		m := newTestMux(t, MuxConfig{}, canceled)
		running := exchange(t, m, stranger, callFrame("sleep", `{"milliseconds":3600000}`))
		fetched := exchange(t, m, stranger, callFrame("big", `{"bytes":100000}`))
		if running.kind != kindWait || fetched.kind != kindMore {
			t.Fatalf("kinds %#x, %#x", running.kind, fetched.kind)
		}
		time.Sleep(idleLimit - time.Millisecond)
		if a := exchange(t, m, stranger, frame{kind: kindNext, cursor: fetched.cursor}); a.kind != kindMore {
			t.Errorf("a cursor expired too early: %.80s", a.payload)
		}
		if err := <-canceled; err == nil { // its time is up while the other was asked for again
			t.Error("the sleeper was told nothing")
		}
		time.Sleep(idleLimit + time.Millisecond)
		for _, cursor := range []cursor{running.cursor, fetched.cursor} {
			a := exchange(t, m, stranger, frame{kind: kindNext, cursor: cursor})
			if !strings.Contains(string(a.payload), string(CodeStaleCursor)) {
				t.Errorf("after %v: %.80s", idleLimit, a.payload)
			}
		}
		if got := testutil.ToFloat64(m.metrics.expired); got != 2 {
			t.Errorf("%v calls expired, want 2", got)
		}
		synctest.Wait()
		assertNothingHeld(t, m)
		_ = m.Close()
	})
}

func TestDropCancelsTheMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled := make(chan error, 1)
		m := newTestMux(t, MuxConfig{}, canceled)
		a := exchange(t, m, stranger, callFrame("sleep", `{"milliseconds":3600000}`))
		if a := exchange(t, m, stranger, frame{kind: kindDrop, cursor: a.cursor}); string(a.payload) != `{"result":null}` {
			t.Errorf("drop gave %s", a.payload)
		}
		if err := <-canceled; !errors.Is(err, context.Canceled) {
			t.Errorf("the method was told %v", err)
		}
		synctest.Wait()
		assertNothingHeld(t, m)
		_ = m.Close()
	})
}

// limited returns a ledger of which some kinds are small.
func limited(small map[budget.Kind]int64) *budget.Ledger {
	limits := budget.DefaultLimits()
	for k, n := range small {
		limits[k] = n
	}
	return budget.New(limits, owner.UID)
}

func TestStrangersCannotLockTheOwnerOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Calls: 16})}, nil)
		served := func(c Caller) bool {
			a := exchange(t, m, c, callFrame("sleep", `{"milliseconds":10000}`))
			if a.kind == kindLast && !strings.Contains(string(a.payload), string(CodeOverQuota)) {
				t.Errorf("refused with %s", a.payload)
			}
			return a.kind == kindWait
		}
		many := func(c Caller) (n int) {
			for range 16 {
				if served(c) {
					n++
				}
			}
			return n
		}
		if n := many(stranger); n != 6 {
			t.Errorf("%d of a stranger's 16 calls were served, want 6: half of three quarters", n)
		}
		if n := many(Caller{UID: 2001}); n != 3 {
			t.Errorf("%d of another stranger's 16 calls were served, want 3: half of what is left", n)
		}
		if n := many(owner); n != 7 {
			t.Errorf("%d of the owner's 16 calls were served, want 7: what is left", n)
		}
		if a := exchange(t, m, root, callFrame("echo", "")); !strings.Contains(string(a.payload), string(CodeOverQuota)) {
			t.Errorf("a seventeenth call gave %s", a.payload)
		}
		_ = m.Close()
	})
}

// inContainers returns the configuration of a mux that trusts those processes alone whose
// number is below 1000, and finds the process of thread N to be N.
func inContainers(small map[budget.Kind]int64) MuxConfig {
	return MuxConfig{
		Ledger:    limited(small),
		Trusted:   func(c Caller) bool { return c.PID < 1000 },
		ProcessOf: func(tid uint32) (uint32, []uint32) { return tid, nil },
	}
}

func TestRootOfAContainerCannotLockTheOwnerOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, uid := range []uint32{root.UID, owner.UID} {
			m := newTestMux(t, inContainers(map[budget.Kind]int64{budget.Calls: 16, budget.Requests: 1600}), nil)
			prompt := func(context.Context, Caller, map[string]any) (struct{}, error) { return struct{}{}, nil }
			HandlePrompt(m, "prompt", Anyone, nil, prompt)
			guest, trusted := Caller{UID: uid, TID: 4711}, Caller{UID: uid, TID: 7}
			var held []cursor
			for range 16 {
				a := exchange(t, m, guest, callFrame("sleep", `{"milliseconds":3600000}`))
				if a.kind == kindWait {
					held = append(held, a.cursor)
				} else if !strings.Contains(string(a.payload), string(CodeOverQuota)) {
					t.Errorf("refused with %s", a.payload)
				}
			}
			if len(held) != 6 {
				t.Errorf("user %d of a container holds %d of 16 calls, want 6 as any other", uid, len(held))
			}
			if a := exchange(t, m, guest, callFrame("prompt", "")); !strings.Contains(string(a.payload), string(CodeOverQuota)) {
				t.Errorf("user %d of a container may call on: %s", uid, a.payload)
			}
			for _, method := range []string{"echo", "prompt", "secret"} {
				if a := exchange(t, m, trusted, callFrame(method, "")); strings.Contains(string(a.payload), "error") {
					t.Errorf("user %d outside cannot call %s: %s", uid, method, a.payload)
				}
			}
			for _, at := range held {
				exchange(t, m, guest, frame{kind: kindDrop, cursor: at})
			}
			synctest.Wait()
			assertNothingHeld(t, m)
			_ = m.Close()
		}
	})
}

func TestRootOfAContainerLeavesRoomForAnswersOfTheOwner(t *testing.T) {
	m := newTestMux(t, inContainers(map[budget.Kind]int64{budget.Answers: 160_000}), nil)
	HandlePrompt(m, "prompt", Anyone, nil, func(_ context.Context, _ Caller, p bigParams) (string, error) {
		return strings.Repeat("x", p.Bytes), nil
	})
	for i, refused := range []bool{false, true, true} {
		a := exchange(t, m, Caller{TID: 4711}, callFrame("big", `{"bytes":50000}`))
		if got := strings.Contains(string(a.payload), string(CodeOverQuota)); got != refused {
			t.Errorf("answer %d of root of a container: refused %v, want %v", i, got, refused)
		}
	}
	for _, method := range []string{"big", "prompt"} {
		a := exchange(t, m, Caller{TID: 7}, callFrame(method, `{"bytes":100000}`))
		if a.kind != kindMore {
			t.Errorf("root outside gets no answer of %s: %s", method, a.payload)
		}
		exchange(t, m, Caller{TID: 7}, frame{kind: kindDrop, cursor: a.cursor})
	}
}

func TestFewIoctlsWaitInTheDaemonAndTheOthersAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, inContainers(map[budget.Kind]int64{budget.Waits: 16}), nil)
		var all sync.WaitGroup
		var waited, paused atomic.Int64
		for range 100 {
			all.Go(func() {
				began := time.Now()
				switch a := exchange(t, m, Caller{UID: stranger.UID, TID: 4711}, callFrame("sleep", `{"milliseconds":3600000}`)); {
				case a.kind != kindWait:
					t.Errorf("answered with %s", a.payload)
				case time.Since(began) == waitLimit && a.offset == 0:
					waited.Add(1)
				case time.Since(began) == 0 && a.offset > 0:
					paused.Add(1)
				default:
					t.Errorf("after %v it is told to wait for %d ms", time.Since(began), a.offset)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if a := exchange(t, m, Caller{TID: 7}, callFrame("sleep", `{"milliseconds":3600000}`)); a.offset != 0 || time.Since(began) != waitLimit {
			t.Errorf("root may not wait: after %v it is told %+v", time.Since(began), a)
		}
		all.Wait()
		if waited.Load() != 6 || paused.Load() != 94 {
			t.Errorf("%d calls waited in the daemon, %d were told to ask again, want 6 and 94", waited.Load(), paused.Load())
		}
		_ = m.Close()
	})
}

func TestClientsThatAreToldToAskAgainGetTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, inContainers(map[budget.Kind]int64{budget.Waits: 16}), nil)
		var all sync.WaitGroup
		asked := 0
		for i := range 100 {
			all.Go(func() {
				c := clientOf(m, Caller{UID: stranger.UID, TID: 4711})
				exchange := c.exchange
				c.exchange = func(buf []byte) (int, error) {
					if i == 99 {
						asked++
					}
					return exchange(buf)
				}
				var got string
				if err := c.Call(t.Context(), "sleep", sleepParams{10_000}, &got); err != nil || got != "slept" {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		all.Wait()
		if asked > 100 {
			t.Errorf("in ten seconds one of them asked %d times", asked)
		}
		assertNothingHeld(t, m)
		_ = m.Close()
	})
}

func TestHeldAnswersAreBounded(t *testing.T) {
	m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Answers: 128_000})}, nil)
	if a := exchange(t, m, stranger, callFrame("big", `{"bytes":40000}`)); a.kind != kindMore {
		t.Fatalf("%.80s", a.payload)
	}
	a := exchange(t, m, stranger, callFrame("big", `{"bytes":40000}`))
	for _, want := range []string{string(CodeOverQuota), "was done", "answers", "drop them"} {
		if !strings.Contains(string(a.payload), want) {
			t.Errorf("a stranger who holds more than its share is not told %q: %#x %.200s", want, a.kind, a.payload)
		}
	}
	a = exchange(t, m, root, callFrame("big", `{"bytes":75000}`))
	if a.kind != kindMore {
		t.Errorf("root was refused: %s", a.payload)
	}
	if b := exchange(t, m, root, callFrame("big", `{"bytes":20000}`)); !strings.Contains(string(b.payload), string(CodeOverQuota)) {
		t.Errorf("more than everything is held: %#x", b.kind)
	}
	exchange(t, m, root, frame{kind: kindDrop, cursor: a.cursor})
	if b := exchange(t, m, root, callFrame("big", `{"bytes":20000}`)); b.kind != kindMore {
		t.Errorf("a dropped answer still counts: %s", b.payload)
	}
}

func TestAnswerBeyondTheLimitIsAnError(t *testing.T) {
	c := clientOf(newTestMux(t, MuxConfig{MaxAnswerBytes: 1000}, nil), root)
	if err := c.Call(t.Context(), "big", bigParams{1000}, nil); !errors.Is(err, &Error{Code: CodeTooLarge}) {
		t.Errorf("got %v", err)
	}
	if err := c.Call(t.Context(), "big", bigParams{900}, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestRequestBeyondTheBufferIsRefusedByTheClient(t *testing.T) {
	c := clientOf(newTestMux(t, MuxConfig{}, nil), root)
	err := c.Call(t.Context(), "echo", map[string]string{"a": strings.Repeat("x", MaxPayload)}, nil)
	if err == nil || !strings.Contains(err.Error(), "the limit is 16344") {
		t.Errorf("got %v", err)
	}
	room := MaxPayload - len(`{"method":"echo","params":{"a":""}}`)
	if err := c.Call(t.Context(), "echo", map[string]string{"a": strings.Repeat("x", room)}, nil); err != nil {
		t.Errorf("a request that just fits: %v", err)
	}
}

func TestCloseCancelsWhatRunsAndRefusesWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled := make(chan error, 8)
		m := newTestMux(t, MuxConfig{}, canceled)
		c := clientOf(m, root)
		var g sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			g.Go(func() { errs[i] = c.Call(t.Context(), "sleep", sleepParams{3_600_000}, nil) })
		}
		time.Sleep(100 * time.Millisecond)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		g.Wait()
		for _, err := range errs {
			if !errors.Is(err, &Error{Code: CodeCanceled}) {
				t.Errorf("a running call ended with %v", err)
			}
		}
		if err := c.Call(t.Context(), "echo", nil, nil); !errors.Is(err, &Error{Code: CodeStopping}) {
			t.Errorf("a later call ended with %v", err)
		}
		assertNothingHeld(t, m)
	})
}

func TestRegistrationMistakesPanic(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	nothing := func(context.Context, Caller, struct{}) (struct{}, error) { return struct{}{}, nil }
	mustPanic := func(what string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s does not panic", what)
			}
		}()
		f()
	}
	mustPanic("no name", func() { Handle(m, "", Owner, nothing) })
	mustPanic("taken name", func() { Handle(m, "hello", Owner, nothing) })
	exchange(t, m, root, callFrame("echo", ""))
	mustPanic("registration while serving", func() { Handle(m, "late", Owner, nothing) })
}

func TestThousandCallersGetTheirOwnAnswers(t *testing.T) {
	// All answers may be there at once.
	m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Calls: 1 << 20, budget.Requests: 1 << 30, budget.Answers: 1 << 30})}, nil)
	var g sync.WaitGroup
	for i := range 1000 {
		g.Go(func() {
			caller := Caller{UID: uint32(i % 7), PID: uint32(i)}
			c := clientOf(m, caller)
			var who Caller
			if err := c.Call(t.Context(), "whoami", nil, &who); err != nil || who != caller {
				t.Errorf("caller %v was %v, %v", caller, who, err)
			}
			var big string
			if err := c.Call(t.Context(), "big", bigParams{17_000 + i}, &big); err != nil || len(big) != 17_000+i {
				t.Errorf("caller %d got %d bytes, %v", i, len(big), err)
			}
		})
	}
	g.Wait()
	assertNothingHeld(t, m)
}
