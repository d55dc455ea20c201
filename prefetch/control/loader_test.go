package control

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// goldenTree has the files view/train/000 to 009 of 1000 bytes.
func goldenTree() prefetchtest.Tree {
	var files []string
	for i := range 10 {
		files = append(files, fmt.Sprintf("view/train/%03d", i))
	}
	return prefetchtest.NewTree(1000, files...)
}

// goldenRights lets all but user 3000 read the files of tree.
func goldenRights(tree prefetchtest.Tree) prefetchtest.Rights {
	return prefetchtest.Rights{Names: tree, Denied: func(who session.Who, _ string) bool { return who.UID == 3000 }}
}

// loaderMux registers the loader's methods on m over fakes, with sessions and jobs
// called id-1, id-2 and so on.
func loaderMux(t *testing.T, m *Mux) (stop func()) {
	t.Helper()
	ids := 0
	tree, fetched := goldenTree(), prefetchtest.NewCache(1<<20)
	fetched.Slow(0)
	p, err := prefetch.New(prefetch.Config{Rights: goldenRights(tree), Ledger: m.cfg.Ledger, NewID: func() string {
		ids++
		return fmt.Sprint("id-", ids)
	}}, tree, fetched, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	HandleLoader(m, p)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// scriptMux returns the daemon of a script after its setup.
func scriptMux(t *testing.T, s *script) (m *Mux, stop func()) {
	t.Helper()
	m = goldenMux(t)
	group, _, _ := strings.Cut(s.Call, ".")
	if !slices.Contains([]string{"loader", "warm", "evict", "measure"}, group) {
		return m, func() {}
	}
	stop = loaderMux(t, m)
	for _, before := range s.Setup {
		var params any
		if before.Params != nil {
			params = before.Params
		}
		if err := clientOf(m, s.Caller).Call(t.Context(), before.Call, params, nil); err != nil {
			t.Fatalf("setup: %v", err)
		}
		synctest.Wait()
	}
	return m, stop
}

func TestSessionsOfRootOfAContainerAreItsOwnAndChargedAsAnyOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, inContainers(map[budget.Kind]int64{budget.Sessions: 16, budget.Names: 256 << 10, budget.Jobs: 16}), nil)
		stop := loaderMux(t, m)
		defer stop()
		guest, trusted := clientOf(m, Caller{TID: 4711}), clientOf(m, Caller{TID: 7})
		open := func(c *Client, worker int) (got OpenResult, err error) {
			return got, c.Call(t.Context(), "loader.open", OpenParams{Task: "task", Worker: worker, Buffer: 1000}, &got)
		}
		over := &Error{Code: CodeOverQuota}
		first, err := open(guest, 0)
		if err != nil {
			t.Fatal(err)
		}
		var out PreloadResult
		paths := make([]string, 200)
		for i := range paths {
			paths[i] = fmt.Sprint(i)
		}
		if err := guest.Call(t.Context(), "loader.preload", PathsParams{Session: first.Session, Paths: paths}, &out); err != nil {
			t.Fatal(err)
		}
		if out.Accepted > 96 || out.Accepted < 60 {
			t.Errorf("%d names of 1 KiB were taken, three eighths of all are 96", out.Accepted)
		}
		opened := 1
		for worker := 1; worker < 16; worker++ {
			if _, err := open(guest, worker); err == nil {
				opened++
			} else if !errors.Is(err, over) {
				t.Error(err)
			}
		}
		if opened > 6 {
			t.Errorf("%d of 16 sessions were opened, want no more than 6", opened)
		}
		jobs := 0
		for guest.Call(t.Context(), "warm.open", nil, nil) == nil {
			jobs++
		}
		if jobs != 6 {
			t.Errorf("%d of 16 jobs were begun, want 6", jobs)
		}
		own, err := open(trusted, 0)
		if err != nil || own.Session == first.Session || own.Adopted != 0 {
			t.Errorf("root outside was given %+v, %v, the first of the container is %q", own, err, first.Session)
		}
		if err := trusted.Call(t.Context(), "loader.preload", PathsParams{Session: own.Session, Paths: paths[:80]}, &out); err != nil || out.Accepted != 80 {
			t.Errorf("root outside announces %+v, %v", out, err)
		}
	})
}

// openMany opens sessions by an open description until there is room for no more, and returns the
// last and how many it opened.
func openMany(t *testing.T, m *Mux, handle uint64) (c *Client, last session.ID, opened int) {
	t.Helper()
	c = clientOf(m, Caller{UID: stranger.UID, Handle: handle})
	for worker := range 16 {
		var got OpenResult
		err := c.Call(t.Context(), "loader.open", OpenParams{Task: fmt.Sprint(handle), Worker: worker, Buffer: 1}, &got)
		if err == nil {
			last = got.Session
			opened++
		} else if !errors.Is(err, &Error{Code: CodeOverQuota}) {
			t.Error(err)
		}
	}
	return c, last, opened
}

func TestSessionsOfAProcessThatIsGoneGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Sessions: 16})}, nil)
		stop := loaderMux(t, m)
		defer stop()
		_, _, a := openMany(t, m, 1)
		if _, _, b := openMany(t, m, 2); a != 6 || b != 0 {
			t.Errorf("two processes of a user opened %d and %d sessions, want 6 and 0", a, b)
		}
		m.Released(1)
		if _, _, n := openMany(t, m, 2); n != 6 {
			t.Errorf("when the first is gone the second opened %d sessions, want 6", n)
		}
	})
}

// TestWhatIsReleasedDuringACallIsNotedAfterIt: a process is killed that waits for room. Its call
// goes on for a moment, and its session is not in use for ever because of that.
func TestWhatIsReleasedDuringACallIsNotedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Sessions: 16})}, nil)
		stop := loaderMux(t, m)
		defer stop()
		dead, waiting, _ := openMany(t, m, 1)
		ended := make(chan error)
		for range 2 {
			go func() {
				ended <- dead.Call(t.Context(), "loader.preload", PathsParams{Session: waiting, Paths: []string{"view/train/000", "view/train/001"}, Wait: true}, nil)
			}()
		}
		synctest.Wait()
		m.Released(1)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if _, _, n := openMany(t, m, 2); n != 6 {
			t.Errorf("when the process is gone another one opened %d sessions, want 6", n)
		}
		if len(m.mu.held) != 0 {
			t.Errorf("the mux remembers %v", m.mu.held)
		}
	})
}

// TestWhoMayReadIsUntoldWhileTheStoreIsAway: nothing is said to have failed for that, and no more
// is told of a path than that.
func TestWhoMayReadIsUntoldWhileTheStoreIsAway(t *testing.T) {
	for _, test := range []struct {
		err  error
		code Code
	}{
		{fmt.Errorf("user 2000 may not read %q: %w", "hidden", iofs.ErrPermission), CodeRefused},
		{fmt.Errorf("list %q: %w", "hidden", oss.ErrAccessDenied), CodeRefused},
		{fmt.Errorf("%q: %w", "hidden", syscall.ELOOP), CodeFailed},
		{fmt.Errorf("list %q: %w", "hidden", oss.ErrUnavailable), CodeUntold},
		{fmt.Errorf("list %q: %w", "hidden", context.DeadlineExceeded), CodeUntold},
		{errors.New("dial tcp: connection refused"), CodeUntold},
		{fmt.Errorf("list %q: %w", "hidden", context.Canceled), CodeCanceled},
	} {
		got := errorOf(Refusal(Caller{UID: 2000, Dir: "view"}, test.err))
		if got.Code != test.code || got.Code != CodeCanceled && strings.Contains(got.Message, "hidden") {
			t.Errorf("%v: %+v, want %s", test.err, got, test.code)
		}
	}
}

// TestWhoSeesAPartOfTheMountIsToldNoPathOfTheHost: nor one of the mount beside that part.
func TestWhoSeesAPartOfTheMountIsToldNoPathOfTheHost(t *testing.T) {
	detail := errors.New("look for session: prefix/beside: connection refused")
	for _, test := range []struct {
		dir       string
		kept      keep.Persistence
		path, why string
	}{
		{"", keep.Persistence{Kind: "node", Path: "/cache/s", Reason: "r"}, "/cache/s", "r"},
		{"view", keep.Persistence{Kind: "node", Path: "/cache/s", Reason: "r"}, "", "r"},
		{"", keep.Persistence{Kind: "mount", Path: "view/t/s"}, "view/t/s", ""},
		{"view", keep.Persistence{Kind: "mount", Path: "view/t/s"}, "t/s", ""},
		{"view/t", keep.Persistence{Kind: "mount", Path: "view/u/s"}, "", ""},
		{"", keep.Persistence{Kind: "node", Path: "/cache/s", Reason: "r", Detail: detail}, "/cache/s", "r: " + detail.Error()},
		{"view", keep.Persistence{Kind: "node", Path: "/cache/s", Reason: "r", Detail: detail}, "", "r"},
	} {
		if got := keptFor(Caller{Dir: test.dir}, test.kept); got.Path != test.path || got.Reason != test.why {
			t.Errorf("on %q, of %+v, told %q, %q", test.dir, test.kept, got.Path, got.Reason)
		}
	}
}

func TestPathsAreThoseOfTheDirectoryThatWasOpened(t *testing.T) {
	for _, test := range []struct{ dir, name, want string }{
		{"", "a/b", "a/b"},
		{"", "", ""},
		{"", ".", ""},
		{"", "./a/", "a"},
		{"view", "a", "view/a"},
		{"view", "", "view"},
		{"view", "./", "view"},
	} {
		got, err := within(test.dir, test.name)
		if err != nil || got != test.want {
			t.Errorf("%q on %q is %q, %v, want %q", test.name, test.dir, got, err, test.want)
		}
		if err == nil && test.name == "a" && relative(test.dir, got) != "a" {
			t.Errorf("%q on %q is shown as %q", got, test.dir, relative(test.dir, got))
		}
	}
	for _, name := range []string{"..", "../a", "a/../b", "/a", "a//b", "a/./b", "a\x00"} {
		if got, err := within("view", name); !errors.Is(err, &Error{Code: CodeBadRequest}) {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
}

func TestSessionsBelongToTheirUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{}, nil)
		stop := loaderMux(t, m)
		defer stop()
		var open OpenResult
		if err := clientOf(m, stranger).Call(t.Context(), "loader.open", OpenParams{Task: "t", Buffer: 10}, &open); err != nil {
			t.Fatal(err)
		}
		other := Caller{UID: 2001}
		for method, params := range map[string]any{
			"loader.close":   CloseParams{Session: open.Session},
			"loader.renew":   RenewParams{Session: open.Session},
			"loader.quota":   QuotaParams{Session: open.Session},
			"loader.preload": PathsParams{Session: open.Session, Paths: []string{"a"}},
			"loader.active":  PathsParams{Session: open.Session, Paths: []string{"a"}},
			"loader.release": PathsParams{Session: open.Session, Paths: []string{"a"}},
			"loader.wait":    PathsParams{Session: open.Session, Paths: []string{"a"}},
			"loader.status":  PathsParams{Session: open.Session},
		} {
			if err := clientOf(m, other).Call(t.Context(), method, params, nil); !errors.Is(err, &Error{Code: CodeNoSession}) {
				t.Errorf("%s of another user: %v", method, err)
			}
			if method == "loader.close" {
				continue
			}
			if err := clientOf(m, root).Call(t.Context(), method, params, nil); err != nil {
				t.Errorf("%s of root: %v", method, err)
			}
		}
		if err := clientOf(m, stranger).Call(t.Context(), "evict", EvictParams{Paths: []string{"view"}}, nil); !errors.Is(err, &Error{Code: CodeRefused}) {
			t.Errorf("a stranger evicts: %v", err)
		}
		var measured MeasureResult
		if err := clientOf(m, Caller{UID: 3000}).Call(t.Context(), "measure", MeasureParams{Paths: []string{"view/train"}}, &measured); err != nil {
			t.Fatal(err)
		}
		if r := measured.Results[0]; r.Files != 0 || r.Error != "user 3000 may not read it" {
			t.Errorf("who may not read is told %+v", r)
		}
	})
}

func TestLoaderRefusesWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMux(t, MuxConfig{}, nil)
		stop := loaderMux(t, m)
		defer stop()
		c := clientOf(m, stranger)
		for _, p := range []OpenParams{
			{Buffer: 0},
			{Buffer: session.MaxBuffer + 1},
			{Buffer: 1, Worker: -1},
			{Buffer: 1, Lease: -1},
			{Buffer: 1, Lease: 1e12},
			{Buffer: 1, Persistence: "../x"},
			{Buffer: 1, Task: strings.Repeat("t", 2000)},
		} {
			if err := c.Call(t.Context(), "loader.open", p, nil); !errors.Is(err, &Error{Code: CodeBadRequest}) {
				t.Errorf("%+v: %v", p, err)
			}
		}
		var open OpenResult
		if err := c.Call(t.Context(), "loader.open", OpenParams{Buffer: 1}, &open); err != nil {
			t.Fatal(err)
		}
		for _, p := range []PathsParams{{Index: -1}, {Seq: -1}, {Paths: []string{".."}}, {Timeout: -1}} {
			p.Session = open.Session
			if err := c.Call(t.Context(), "loader.wait", p, nil); !errors.Is(err, &Error{Code: CodeBadRequest}) {
				t.Errorf("%+v: %v", p, err)
			}
		}
	})
}

func TestWhoSeesASubdirectoryIsNotToldWhatLiesAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := goldenMux(t)
		stop := loaderMux(t, m)
		c := clientOf(m, Caller{UID: 0, Dir: "view/train"})
		var measured MeasureResult
		var evicted EvictResult
		var opened WarmOpenResult
		var progress warm.Progress
		for _, call := range []struct {
			method         string
			params, result any
		}{
			{"measure", MeasureParams{Paths: []string{"none"}}, &measured},
			{"evict", EvictParams{Paths: []string{"none"}}, &evicted},
			{"warm.open", nil, &opened},
			{"warm.add", WarmAddParams{Job: "id-1", Paths: []string{"none"}, Last: true}, nil},
			{"warm.progress", WarmProgressParams{Job: "id-1"}, &progress},
		} {
			if err := c.Call(t.Context(), call.method, call.params, call.result); err != nil {
				t.Fatalf("%s: %v", call.method, err)
			}
		}
		if len(progress.Results) != 1 {
			t.Fatalf("%+v", progress)
		}
		for what, text := range map[string]string{"measure": measured.Results[0].Error, "evict": evicted.Results[0].Error, "warm": progress.Results[0].Error} {
			if text != "no such file or folder" {
				t.Errorf("%s says %q", what, text)
			}
		}
		_ = m.Close()
		stop()
	})
}
