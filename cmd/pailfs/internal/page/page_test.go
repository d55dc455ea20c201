package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/session"
)

// daemon is a source whose figures grow with its uptime.
type daemon struct {
	started time.Time
	fails   error
	// entered and leave, if there are, let a test hold an answer.
	entered, leave chan struct{}
}

func (d *daemon) Report(names bool) (Answer, error) {
	if d.entered != nil {
		d.entered <- struct{}{}
		<-d.leave
	}
	up := time.Since(d.started).Seconds()
	s := wire.Status{PID: 7, Started: d.started, Uptime: up, SpotNotice: wire.SpotNone}
	s.Cache.Reads.Memory, s.Cache.Reads.MemoryBytes = int64(10*up), int64(1000*up)
	s.Cache.Reads.OSS, s.Cache.Reads.OSSBytes = int64(30*up), int64(3000*up)
	s.Writing = &writeback.Status{Pending: 3, DirtyBytes: 5000, UploadedBytes: int64(70 * up)}
	s.Store.Limiter.InFlight = map[string]int{"demand": 2, "upload": 1}
	if names {
		s.MountPoint = "/mnt/secret"
		s.Loader.Sessions = make([]session.Summary, 2)
	}
	return Answer{Status: s, Sessions: 2}, d.fails
}

func (d *daemon) Readers() []mountpoint.User {
	return []mountpoint.User{{PID: 12, Name: "secret", Files: 3}}
}

// newPage returns the page of a daemon that has just started.
func newPage(t *testing.T) (*Page, *daemon) {
	t.Helper()
	d := &daemon{started: time.Now()}
	p, err := New(d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p, d
}

// get asks as a process of this machine does.
func get(p *Page, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:40000"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// token gives a request the token of the page.
func token(p *Page) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+p.token) }
}

func TestHistoryIsTheLastHalfHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPage(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.Run(ctx) }()
		time.Sleep(SampleEvery / 2)
		if h, r := p.history.report(); len(h.Time) != 0 || r != nil {
			t.Errorf("after one look: %d samples, rates %v", len(h.Time), r)
		}
		time.Sleep(5 * time.Hour)
		stop()
		<-ended
		h, r := p.history.report()
		if len(h.Time) != Kept || h.Time[Kept-1]-h.Time[0] != 1790 || h.Time[Kept-1] < time.Now().Unix()-10 {
			t.Errorf("%d samples, from %v to %v", len(h.Time), h.Time[0], h.Time[len(h.Time)-1])
		}
		for i := 1; i < len(h.Time); i++ {
			if h.Time[i]-h.Time[i-1] != 10 {
				t.Fatalf("sample %d comes %d s after the one before", i, h.Time[i]-h.Time[i-1])
			}
		}
		last := map[string]float64{}
		for name, values := range h.Series {
			if len(values) != Kept {
				t.Errorf("%s has %d values", name, len(values))
			}
			last[name] = values[Kept-1]
		}
		want := map[string]float64{
			"memory_bytes_per_second": 1000, "ssd_bytes_per_second": 0, "oss_bytes_per_second": 3000, "hit_share": 0.25,
			"reads_per_second": 0, "errors_per_second": 0, "received_bytes_per_second": 0, "sent_bytes_per_second": 70,
			"throttled_per_second": 0, "requests_in_flight": 3, "requests_waiting": 0, "pending_changes": 3, "pending_bytes": 5000,
		}
		if diff := cmp.Diff(want, last); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if r == nil || r.Seconds != 10 || r.OSS.Reads != 30 {
			t.Errorf("rates %+v", r)
		}
	})
}

// TestHistoryTakesTwentyKiB: it is an array, and what it refers to has no lists that grow.
func TestHistoryTakesTwentyKiB(t *testing.T) {
	if size := unsafe.Sizeof(recorder{}); size > 20<<10 {
		t.Errorf("a recorder takes %d bytes", size)
	}
	s := wire.Status{Writing: &writeback.Status{Failing: make([]writeback.PendingEntry, 20), Conflicts: make([]writeback.Conflict, 100), Suspects: make([]string, 1000)}}
	s.Loader.Sessions = make([]session.Summary, 1000)
	if c := counters(&s); c.Writing.Failing != nil || c.Writing.Conflicts != nil || c.Writing.Suspects != nil || c.Loader.Sessions != nil {
		t.Errorf("it keeps lists: %+v", c)
	}
	if s.Writing.Failing == nil {
		t.Error("it took them from the daemon's answer")
	}
}

// TestAnotherDaemonsFiguresMakeNoSample: a rate would be negative.
func TestAnotherDaemonsFiguresMakeNoSample(t *testing.T) {
	p, d := newPage(t)
	p.sample(time.Now())
	d.started = d.started.Add(time.Hour)
	p.sample(time.Now())
	if h, _ := p.history.report(); len(h.Time) != 0 {
		t.Errorf("%d samples", len(h.Time))
	}
}

func TestNamesAreForWhoHasTheTokenOnThisMachine(t *testing.T) {
	p, _ := newPage(t)
	other, _ := newPage(t)
	if p.token == other.token || len(p.token) < 26 {
		t.Fatalf("tokens %q and %q", p.token, other.token)
	}
	from := func(address string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = address } }
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	for _, row := range []struct {
		what   string
		change []func(*http.Request)
		code   int
		names  bool
	}{
		{"no token", nil, http.StatusOK, false},
		{"the token", []func(*http.Request){token(p)}, http.StatusOK, true},
		{"the token by IPv6", []func(*http.Request){token(p), from("[::1]:4")}, http.StatusOK, true},
		{"the token by IPv4 in IPv6", []func(*http.Request){token(p), from("[::ffff:127.0.0.1]:4")}, http.StatusOK, true},
		{"the token from elsewhere", []func(*http.Request){token(p), from("10.1.2.3:4")}, http.StatusForbidden, false},
		{"no token from elsewhere", []func(*http.Request){from("10.1.2.3:4")}, http.StatusOK, false},
		{"the token of another daemon", []func(*http.Request){token(other)}, http.StatusForbidden, false},
		{"a part of the token", []func(*http.Request){header("Bearer " + p.token[:25])}, http.StatusForbidden, false},
		{"an empty token", []func(*http.Request){header("Bearer ")}, http.StatusForbidden, false},
		{"another scheme", []func(*http.Request){header("Basic " + p.token)}, http.StatusForbidden, false},
	} {
		w := get(p, "/page.json", row.change...)
		if w.Code != row.code {
			t.Errorf("%s: %d", row.what, w.Code)
		}
		if told := strings.Contains(w.Body.String(), "secret"); told != row.names {
			t.Errorf("%s: names are told: %t", row.what, told)
		}
		if w.Code == http.StatusOK {
			var d Document
			if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || d.Names != row.names || d.Sessions != 2 || len(d.Mount.Readers) != map[bool]int{true: 1}[row.names] {
				t.Errorf("%s: %v, %+v", row.what, err, d)
			}
		}
	}
	for _, path := range []string{"/page.json?token=" + p.token, "/?token=" + p.token} {
		if strings.Contains(get(p, path).Body.String(), "secret") {
			t.Errorf("%s: an address that is sent, and logged, tells names", path)
		}
	}
}

func TestTheAddressHasTheTokenWhereItStaysASecret(t *testing.T) {
	p, _ := newPage(t)
	for address, want := range map[string]string{
		"127.0.0.1:9321": "http://127.0.0.1:9321/#token=" + p.token,
		"[::1]:9321":     "http://[::1]:9321/#token=" + p.token,
		"0.0.0.0:9321":   "http://127.0.0.1:9321/#token=" + p.token,
		"[::]:9321":      "http://[::1]:9321/#token=" + p.token,
		"10.1.2.3:9321":  "http://10.1.2.3:9321/",
	} {
		if got, names := p.URL(address); got != want || names != strings.Contains(want, "token") {
			t.Errorf("%s: %s, %t", address, got, names)
		}
	}
}

// TestThePageKeepsToItself: by the headers of every answer.
func TestThePageKeepsToItself(t *testing.T) {
	p, _ := newPage(t)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/page.css": "text/css; charset=utf-8",
		"/icon.svg": "image/svg+xml", "/page.json": "application/json",
	} {
		w := get(p, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: no %s in %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: %s", path, policy)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, w.Header())
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			if w := get(p, path, func(r *http.Request) { r.Method = method }); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/nothing", "/files/index.html", "/page.json/x", "/debug/pprof/"} {
		if w := get(p, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestAPartOfThePageIsNoOthers: it loads nothing from elsewhere, and has neither scripts nor styles
// of which the policy would know nothing.
func TestAPartOfThePageIsNoOthers(t *testing.T) {
	for _, s := range static {
		content, err := files.ReadFile(s.file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
		for _, word := range []string{"://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick", "onload="} {
			if strings.Contains(text, word) {
				t.Errorf("%s has %q", s.file, word)
			}
		}
	}
}

func TestMoreThanSomeAtOnceAreAskedToComeAgain(t *testing.T) {
	p, d := newPage(t)
	d.entered, d.leave = make(chan struct{}), make(chan struct{})
	codes := make(chan int)
	for range mostAnswers {
		go func() { codes <- get(p, "/page.json").Code }()
		<-d.entered
	}
	if w := get(p, "/page.json"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d", w.Code)
	}
	close(d.leave)
	for range mostAnswers {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one of those before: %d", code)
		}
	}
}

// stalled is a client that does not read its answer.
type stalled struct {
	*httptest.ResponseRecorder
	entered, leave chan struct{}
}

func (s stalled) Write(text []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.leave
	return s.ResponseRecorder.Write(text)
}

// TestWhoDoesNotReadHoldsUpNobody: neither others who ask nor the end of the mount.
func TestWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	p, _ := newPage(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	for range mostAnswers {
		go func() {
			p.ServeHTTP(stalled{httptest.NewRecorder(), entered, leave}, httptest.NewRequest(http.MethodGet, "/page.json", http.NoBody))
			ended <- struct{}{}
		}()
		<-entered
	}
	if code := get(p, "/page.json").Code; code != http.StatusOK {
		t.Errorf("another one: %d", code)
	}
	if !p.open.TryLock() {
		t.Error("the end waits")
	} else {
		p.open.Unlock()
	}
	close(leave)
	for range mostAnswers {
		<-ended
	}
}

// TestNothingIsAskedOfADaemonThatEnds: its parts are closed.
func TestNothingIsAskedOfADaemonThatEnds(t *testing.T) {
	p, d := newPage(t)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	d.fails = errors.New("asked")
	if w := get(p, "/page.json"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	p.sample(time.Now())
	p.sample(time.Now().Add(time.Second))
	if h, _ := p.history.report(); len(h.Time) != 0 {
		t.Error("it was sampled")
	}
}

// TestAFailureIsLoggedAndNotTold: it may have names.
func TestAFailureIsLoggedAndNotTold(t *testing.T) {
	p, d := newPage(t)
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	d.fails = fmt.Errorf("gather: %w", errors.New("secret"))
	if w := get(p, "/page.json"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "secret") {
		t.Errorf("log %q", &log)
	}
}
