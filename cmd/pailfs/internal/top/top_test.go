package top

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/session"
)

var update = flag.Bool("update", false, "write the golden files anew")

// host is a host whose mounts are as a test says.
type host struct {
	mounts []look.Mount
	// seen is what a look at a mount gives, asked counts the looks.
	seen  map[string]look.Seen
	asked map[string]int
}

func newHost(paths ...string) *host {
	h := &host{seen: map[string]look.Seen{}, asked: map[string]int{}}
	for i, path := range paths {
		h.mounts = append(h.mounts, look.Mount{Mount: mountpoint.Mount{Path: path, Source: "oss://bucket" + path, Minor: uint32(i + 1)}})
		h.seen[path] = look.Seen{Health: look.OK, Status: status(100, 1)}
	}
	return h
}

func (h *host) watcher() *watcher {
	w := newWatcher(time.Second)
	w.list = func() ([]look.Mount, error) { return slices.Clone(h.mounts), nil }
	w.users = func(mountpoint.Mount) []mountpoint.User {
		return []mountpoint.User{{PID: 12, Name: "python3", Files: 3}}
	}
	w.looks = func(_ context.Context, mounts []look.Mount, _ time.Duration) []look.Seen {
		var all []look.Seen
		for _, m := range mounts {
			h.asked[m.Path]++
			seen := h.seen[m.Path]
			seen.Mount = m
			all = append(all, seen)
		}
		return all
	}
	return w
}

// status returns what a daemon says after some time, with all that it can say.
func status(uptime float64, reads int64) *wire.Status {
	s := &wire.Status{PID: 7, Uptime: uptime, Resident: 1 << 20}
	s.Cache.Reads = cache.ReadStats{Memory: 6 * reads, SSD: 3 * reads, OSS: reads, MemoryBytes: 600 * reads, SSDBytes: 300 * reads, OSSBytes: 100 * reads}
	s.Cache.SSD = &cache.SSDStats{State: "ok", Used: 1 << 20, Limit: 1 << 30}
	s.Latencies = []wire.LatencyStats{{Operation: "read", Count: uint64(reads), P50: 0.001, P99: 0.1, Errors: map[string]uint64{"io": 1}}}
	s.Store.Requests = []wire.LatencyStats{{Operation: "get", Count: uint64(reads), Bytes: 7}}
	s.Store.Endpoint = "https://oss.example"
	s.Writing = &writeback.Status{Pending: 2, DirtyFiles: 1, DirtyBytes: 5 << 20, FailingCount: 1, Failing: []writeback.PendingEntry{
		{Path: "ckpt/1.pt", Doing: "upload", State: "failing", Error: "access denied", Since: time.Now()},
	}}
	s.Loader.Sessions = []session.Summary{{Task: "train", Worker: 3, Streams: []session.StreamSummary{{Index: 1}}}}
	return s
}

func frameOf(t *testing.T, w *watcher) Frame {
	t.Helper()
	f, err := w.frame(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRatesNeedTwoLooksAtOneDaemon(t *testing.T) {
	h := newHost("/mnt/a")
	w := h.watcher()
	if f := frameOf(t, w); f.Mounts[0].Rates != nil {
		t.Errorf("after one look: %+v", f.Mounts[0].Rates)
	}
	h.seen["/mnt/a"] = look.Seen{Health: look.OK, Status: status(110, 11)}
	f := frameOf(t, w)
	if r := f.Mounts[0].Rates; r == nil || r.OSS.Reads != 1 || r.Memory.Share != 0.6 || r.SSD.Bytes != 300 {
		t.Errorf("after two: %+v", r)
	}
	other := status(1, 1)
	other.PID = 8
	h.seen["/mnt/a"] = look.Seen{Health: look.OK, Status: other}
	if f := frameOf(t, w); f.Mounts[0].Rates != nil {
		t.Errorf("of two daemons: %+v", f.Mounts[0].Rates)
	}
}

// TestAMountComesBack: the one that was asked for is shown while it is away.
func TestAMountComesBack(t *testing.T) {
	h := newHost("/mnt/a", "/mnt/b")
	w := h.watcher()
	w.only = "/mnt/a"
	healths := func() (got []string) {
		for _, m := range frameOf(t, w).Mounts {
			got = append(got, m.MountPoint+" "+m.Health)
		}
		return got
	}
	there := h.mounts
	var got []string
	for _, mounts := range [][]look.Mount{there, nil, there} {
		h.mounts = mounts
		got = append(got, healths()...)
	}
	if diff := cmp.Diff([]string{"/mnt/a ok", "/mnt/a gone", "/mnt/a ok"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f := frameOf(t, w); f.unwell() {
		t.Error("a mount that is back is unwell")
	}
}

// TestAMountThatHangsIsLookedAtOnce: each look would leave a process behind.
func TestAMountThatHangsIsLookedAtOnce(t *testing.T) {
	h := newHost("/mnt/a", "/mnt/b")
	w := h.watcher()
	left := make(chan struct{})
	h.seen["/mnt/a"] = look.Seen{Health: look.Hung, Left: left}
	for range 5 {
		if f := frameOf(t, w); f.Mounts[0].Health != "hung" || f.Mounts[1].Health != "ok" || !f.unwell() {
			t.Fatalf("%+v", f)
		}
	}
	if h.asked["/mnt/a"] != 1 || h.asked["/mnt/b"] != 5 {
		t.Errorf("looked %v times", h.asked)
	}
	close(left)
	h.seen["/mnt/a"] = look.Seen{Health: look.OK, Status: status(100, 1)}
	if f := frameOf(t, w); f.Mounts[0].Health != "ok" {
		t.Errorf("when it goes on: %+v", f.Mounts[0])
	}
	// Another mount in its place is looked at, although the old look waits still.
	h.seen["/mnt/a"] = look.Seen{Health: look.Hung, Left: make(chan struct{})}
	frameOf(t, w)
	h.mounts[0].Minor = 99
	h.seen["/mnt/a"] = look.Seen{Health: look.OK, Status: status(1, 1)}
	if f := frameOf(t, w); f.Mounts[0].Health != "ok" {
		t.Errorf("a new mount there: %+v", f.Mounts[0])
	}
}

// keys adds the paths of all keys of a JSON document to set.
func keys(set map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			set[at+key] = true
			keys(set, at+key+".", value)
		}
	case []any:
		for _, value := range v {
			keys(set, strings.TrimSuffix(at, ".")+"[].", value)
		}
	}
}

// TestKeysOfJSONAreWhatTheyWere: scripts rely on them. A key may be added with -update.
func TestKeysOfJSONAreWhatTheyWere(t *testing.T) {
	h := newHost("/mnt/a")
	w := h.watcher()
	frameOf(t, w)
	h.seen["/mnt/a"] = look.Seen{Health: look.OK, Status: status(110, 11)}
	var out strings.Builder
	if err := writeJSON(&out, frameOf(t, w)); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a frame is not one line:\n%s", out.String())
	}
	var document any
	if err := json.Unmarshal([]byte(out.String()), &document); err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	keys(set, "", document)
	var list []string
	for key := range set {
		list = append(list, key)
	}
	slices.Sort(list)
	got := strings.Join(list, "\n") + "\n"
	golden := filepath.Join("testdata", "keys.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-golden +got):\n%s", diff)
	}
}

func TestAPipeGetsALineAMount(t *testing.T) {
	h := newHost("/mnt/a", "/mnt/b\n\x1b[2J")
	w, l := h.watcher(), new(lines)
	var out strings.Builder
	for range 30 {
		if err := l.write(&out, frameOf(t, w)); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(got) != 62 || !strings.HasPrefix(got[0], "TIME ") || !strings.HasPrefix(got[41], "TIME ") {
		t.Errorf("%d lines, the first %q, the 42nd %q", len(got), got[0], got[41])
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a name steers the terminal")
	}
	h.mounts = nil
	out.Reset()
	if err := l.write(&out, frameOf(t, w)); err != nil || !strings.HasSuffix(out.String(), "no mounts\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// press gives the screen keys, named as bubbletea does.
func press(s *screen, names ...string) (quit bool) {
	for _, name := range names {
		msg := tea.KeyPressMsg{Text: name, Code: []rune(name)[0]}
		for _, special := range []tea.KeyPressMsg{
			{Code: tea.KeyUp},
			{Code: tea.KeyDown},
			{Code: tea.KeyLeft},
			{Code: tea.KeyRight},
			{Code: tea.KeyEnd},
			{Code: tea.KeyHome},
			{Code: tea.KeyPgDown},
			{Code: tea.KeySpace, Text: " "},
			{Code: 'c', Mod: tea.ModCtrl},
		} {
			if special.String() == name {
				msg = special
			}
		}
		_, cmd := s.Update(msg)
		if cmd != nil {
			_, quit = cmd().(tea.QuitMsg)
		}
	}
	return quit
}

// TestTheScreenScrollsAndChooses: in a terminal of six lines.
func TestTheScreenScrollsAndChooses(t *testing.T) {
	h := newHost("/mnt/a", "/mnt/b")
	w := h.watcher()
	s := &screen{interval: time.Second}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 6})
	s.Update(looked{frame: frameOf(t, w)})
	shows := func(texts ...string) {
		t.Helper()
		view := s.draw()
		if n := strings.Count(view, "\n") + 1; n > 6 {
			t.Errorf("%d lines of 6:\n%s", n, view)
		}
		for _, text := range texts {
			if !strings.Contains(view, text) {
				t.Errorf("the screen has not %q:\n%s", text, view)
			}
		}
	}
	shows("> /mnt/a", "  /mnt/b", "line 1 of")
	press(s, "right")
	shows("> /mnt/b", "oss://bucket/mnt/b at /mnt/b: ok")
	press(s, "down", "down", "down")
	shows("oss://bucket/mnt/b at", "line 4 of")
	press(s, "end")
	shows("pid 12", "python3, 3 open")
	press(s, "down", "pgdown")
	shows("python3, 3 open")
	press(s, "home", "up")
	shows("> /mnt/b", "line 1 of")
	// It stays chosen while it is away.
	all := h.mounts
	h.mounts = all[:1]
	s.Update(looked{frame: frameOf(t, w)})
	shows("/mnt/b: nothing is mounted there now", "  /mnt/a")
	h.mounts = all
	s.Update(looked{frame: frameOf(t, w)})
	shows("> /mnt/b")
	press(s, "?")
	shows("scroll by a line")
	if press(s, "?") {
		t.Error("? ends it")
	}
	shows("> /mnt/b")
	// More room shows more, from where there is enough to fill it.
	press(s, "end")
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 100})
	if view := s.draw(); !strings.Contains(view, "> /mnt/b") || !strings.Contains(view, "python3") {
		t.Errorf("in a large terminal:\n%s", view)
	}
	if !press(s, "q") || !press(s, "ctrl+c") {
		t.Error("q or ctrl-c does not end it")
	}
	if _, cmd := s.Update(looked{err: fmt.Errorf("no table")}); cmd == nil || s.err == nil {
		t.Error("an error does not end it")
	}
}

func TestTheTextOfAMountSaysAllOfIt(t *testing.T) {
	h := newHost("/mnt/a")
	w := h.watcher()
	frameOf(t, w)
	h.seen["/mnt/a"] = look.Seen{Health: look.Degraded, Reasons: []string{"1 uploads fail"}, Status: status(110, 11)}
	f := frameOf(t, w)
	got := strings.Join(text(f.Mounts[0], f.Time), "\n")
	for _, want := range []string{
		"oss://bucket/mnt/a at /mnt/a: degraded", "WRONG       1 uploads fail", "60%", "median 1ms, p99 100ms", "https://oss.example",
		"failing     ckpt/1.pt", "access denied", "1 files, 5.0 MiB; 2 changes", "worker 3    train", "pid 12      python3, 3 open",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
}

// TestWhatIsWrongDoesNotSteerTheTerminal: it names files, which users name as they like.
func TestWhatIsWrongDoesNotSteerTheTerminal(t *testing.T) {
	shown := text(Mount{Health: "degraded", PID: 1, Reasons: []string{"such as a\x1b[2J\nb"}, Uploads: &overview.Uploads{PendingChanges: 1, WaitFor: []writeback.PendingEntry{{Error: "put \x1b[2J\n"}}}}, time.Time{})
	if all := strings.Join(shown, ""); strings.ContainsAny(all, "\x1b\n") || strings.Count(all, `\x1b[2J\n`) != 2 {
		t.Errorf("%q", shown)
	}
}

// TestAFullDiskIsAnError: what could not be written was not shown.
func TestAFullDiskIsAnError(t *testing.T) {
	full, w := io.Pipe()
	_ = full.CloseWithError(unix.ENOSPC)
	for name, show := range map[string]func(io.Writer, Frame) error{"text": writeText, "JSON": writeJSON, "lines": new(lines).write} {
		if err := show(w, Frame{Mounts: []Mount{{Health: "ok"}}}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
