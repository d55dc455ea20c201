package prefetch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pailfs/pailfs/prefetch/announced"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// user returns a process of user 7 that has a descriptor of a directory.
func user(dir string) session.Who {
	return session.As(7, 7, session.Groups{}, session.Base{Path: dir, ID: uint64(len(dir))})
}

// TestReadyFilesStayReadyWhileTheStoreIsAway: that rights cannot be asked takes nothing back.
// It tells nobody more than the state, and another process not even that.
func TestReadyFilesStayReadyWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "d/a", "d/b", "d/shut")
		shown := prefetchtest.Rights{Names: tree, Away: new(atomic.Bool)}
		shown.Denied = func(who session.Who, path string) bool { return !who.IsRoot() && strings.HasSuffix(path, "shut") }
		p, stop := running(t, Config{Rights: shown}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		got, err := p.Keeper.Open(t.Context(), session.Key{UID: 7}, session.Params{Buffer: 10, Who: user("")})
		if err != nil {
			t.Fatal(err)
		}
		n, paths := session.Name{Session: got.Session, UID: 7}, []string{"d/a", "d", "d/shut", "d/missing", "d/none"}
		if _, _, err := p.Sessions.Preload(n, paths[:4]); err != nil {
			t.Fatal(err)
		}
		asked := func(who session.Who) (states []session.File) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waited, done, err := p.Sessions.Wait(ctx, who, n, paths)
			if err != nil || !done {
				t.Fatal(waited, done, err)
			}
			status, err := p.Sessions.Status(t.Context(), who, n, paths)
			if diff := cmp.Diff(waited, status, cmpopts.EquateErrors(), cmpopts.EquateComparable(session.Who{})); err != nil || diff != "" {
				t.Errorf("%v, status differs:\n%s", err, diff)
			}
			return status
		}
		want := func(what string, who session.Who, want ...session.File) {
			t.Helper()
			ignored := cmpopts.IgnoreFields(session.File{}, "Err", "Who", "Path")
			if diff := cmp.Diff(want, asked(who), ignored); diff != "" {
				t.Errorf("%s:\n%s", what, diff)
			}
		}
		ready, failed, unknown := session.File{State: "ready", Ready: true}, session.File{State: "failed"}, session.File{State: "unknown"}
		file := session.File{State: "ready", Ready: true, Files: 1, Bytes: 1000}
		want("before", user(""), file, failed, failed, failed, unknown)
		shown.Away.Store(true)
		want("the store is away", user(""), ready, failed, failed, failed, unknown)
		untold := session.File{State: announced.Untold}
		want("another process asks", user("d"), untold, untold, untold, untold, unknown)
		want("root asks", session.Root(), file, failed, failed, failed, unknown)
		shown.Away.Store(false)
		want("it is back", user("d"), file, failed, failed, failed, unknown)
	})
}

// TestResultsOfAJobWaitForAStoreThatIsAway: none is told that might not be, and none is lost.
func TestResultsOfAJobWaitForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "d/a", "d/b", "x")
		shown := prefetchtest.Rights{Names: tree, Away: new(atomic.Bool)}
		p, stop := running(t, Config{Rights: shown}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		job := openWarm(t, p, 7, true)
		if n, err := p.Warm.Add(t.Context(), job, user(""), []string{"d", "x"}, true); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Minute) // all is done
		progress := func(after int64) warm.Progress {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			now, err := p.Warm.Progress(ctx, job, user(""), after)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		shown.Away.Store(true)
		now := progress(0)
		if want := (warm.Progress{Files: 3, Bytes: 3000, DoneFiles: 3, DoneBytes: 3000, FetchedBytes: 3000, Results: []warm.Result{}, Withheld: 4}); !cmp.Equal(now, want, cmpopts.IgnoreUnexported(warm.Result{})) {
			t.Errorf("while the store is away: %+v", now)
		}
		shown.Away.Store(false)
		now = progress(now.Next)
		if !now.Finished || now.Withheld != 0 || len(now.Results) != 4 || now.Next != 4 {
			t.Errorf("when it is back: %+v", now)
		}
		for _, r := range now.Results {
			if r.State != "ready" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestAJobEndsWhereTheBucketDenies: it does not wait for an answer that it has got, brings the
// rest, and counts what may not be read. What lies below a path and may not be read is not named.
func TestAJobEndsWhereTheBucketDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "d/a", "d/barred/b", "d/barred/c", "d/shut/e", "d/z", "barred/x")
		shown := prefetchtest.Rights{Names: tree}
		shown.Barred = func(path string) bool { return strings.Contains(path, "barred") }
		shown.Denied = func(who session.Who, path string) bool { return !who.IsRoot() && strings.Contains(path, "shut") }
		p, stop := running(t, Config{Rights: shown}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		warm := func(who session.Who) (warm.Progress, []string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			results := []string{}
			progress, err := p.Warm.Warm(ctx, who, []string{"d", "barred/x", "barred"}, func(r warm.Result) {
				results = append(results, fmt.Sprint(r.Path, " ", r.State, " ", r.Files, " ", rights.Errno(r.Err)))
			})
			if err != nil {
				t.Errorf("%+v: %v", progress, err)
			}
			slices.Sort(results)
			return progress, results
		}
		got, results := warm(user(""))
		want := []string{"barred failed 0 EACCES", "barred/x failed 0 EACCES", "d partly 2 EIO"}
		if diff := cmp.Diff(want, results); diff != "" || got.DoneFiles != 2 || got.Failed != 4 || got.Denied != 4 {
			t.Errorf("%+v, told:\n%s", got, diff)
		}
		got, results = warm(session.Root())
		want = []string{"barred failed 0 EACCES", "barred/x failed 0 EACCES", "d partly 3 EIO", "d/barred failed 0 EACCES"}
		if diff := cmp.Diff(want, results); diff != "" || got.DoneFiles != 3 || got.Failed != 3 || got.Denied != 3 {
			t.Errorf("root: %+v, told:\n%s", got, diff)
		}
	})
}

// TestTheSizesOfASessionAreToldToWhoFoundThem: another process of the user may see less of the
// mount.
func TestTheSizesOfASessionAreToldToWhoFoundThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "d/a", "d/b", "x", "y")
		p, stop := running(t, Config{}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		open := func(who session.Who, announced, released string) (n session.Name) {
			t.Helper()
			got, err := p.Keeper.Open(t.Context(), session.Key{UID: 7}, session.Params{Instance: "i", Buffer: 10, Who: who})
			if err != nil {
				t.Fatal(err)
			}
			n = session.Name{Session: got.Session, UID: 7}
			if _, _, err := p.Sessions.Preload(n, []string{announced, released}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // it is there
			if _, _, err := p.Sessions.Release(n, []string{released}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		n := open(user(""), "d", "y")
		replaced := session.As(7, 7, session.Groups{}, session.Base{Path: "d", ID: 99})
		for _, test := range []struct {
			who             session.Who
			ready, released session.Files
			charged         bool
		}{
			{user(""), session.Files{Files: 2, Bytes: 2000}, session.Files{Files: 1, Bytes: 1000}, true},
			{user("d"), session.Files{Files: 2}, session.Files{Files: 1}, false},
			{replaced, session.Files{Files: 2}, session.Files{Files: 1}, false},
			{session.Root(), session.Files{Files: 2, Bytes: 2000}, session.Files{Files: 1, Bytes: 1000}, true},
		} {
			s, err := p.Sessions.Session(n.Session, test.who)
			if err != nil || s.Ready != test.ready || s.Released != test.released || (s.Charged > 0) != test.charged {
				t.Errorf("%+v: %+v, %v", test.who, s, err)
			}
		}
		open(user("d"), "x", "d/a")
		if s, err := p.Sessions.Session(n.Session, user("d")); err != nil || s.Ready != (session.Files{Files: 3, Bytes: 1000}) || s.Released.Bytes != 0 {
			t.Errorf("beside what another process has found: %+v, %v", s, err)
		}
		if _, err := p.Sessions.Session(n.Session, session.As(8, 8, session.Groups{}, session.Base{})); err == nil {
			t.Error("told another user")
		}
	})
}

// TestManyPathsAreWarmedToTheEnd: a job that holds as many results as it may goes on when they
// are read, while more paths are to come.
func TestManyPathsAreWarmedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names(strings.Repeat("d", 100), 2000)
		tree := prefetchtest.NewTree(1000, paths...)
		p, stop := running(t, Config{}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		results := map[string]int{}
		progress, err := p.Warm.Warm(ctx, session.Root(), append(paths, "missing"), func(r warm.Result) { results[r.Path+" "+r.State]++ })
		if err != nil || progress.DoneFiles != 2000 || progress.Failed != 1 || len(results) != 2001 || results["missing failed"] != 1 {
			t.Errorf("%+v, %d results, %v", progress, len(results), err)
		}
		if left := len(p.Overview().Sessions) + p.Overview().WarmJobs; left != 0 {
			t.Errorf("%d are left", left)
		}
		cancel()
		if _, err := p.Warm.Warm(ctx, session.Root(), paths, func(warm.Result) {}); err == nil {
			t.Error("ended well when it was cancelled")
		}
	})
}

// TestAFolderOfWhichMuchMayNotBeReadIsWarmedToTheEnd: whoever walks it waits where as many
// results are held as may be, and goes on when they are read, though no file is fetched meanwhile.
func TestAFolderOfWhichMuchMayNotBeReadIsWarmedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, append(prefetchtest.Names("d/shut", 2000), "d/z")...)
		shown := prefetchtest.Rights{Names: tree}
		shown.Denied = func(who session.Who, path string) bool { return !who.IsRoot() && strings.HasPrefix(path, "d/shut/") }
		p, stop := running(t, Config{Rights: shown}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		progress, err := p.Warm.Warm(ctx, user(""), []string{"d"}, func(warm.Result) {})
		if err != nil || progress.DoneFiles != 1 || progress.Failed != 2000 || progress.Denied != 2000 {
			t.Errorf("%+v, %v", progress, err)
		}
	})
}
