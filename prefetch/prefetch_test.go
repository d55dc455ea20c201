package prefetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var one = session.Key{UID: 7, Task: "task"}

// open opens a session and returns the name of its stream 0.
func open(t *testing.T, p *Prefetcher, key session.Key, buffer int) session.Name {
	t.Helper()
	got, err := p.Keeper.Open(t.Context(), key, session.Params{Instance: "i", Buffer: buffer})
	if err != nil {
		t.Fatal(err)
	}
	return session.Name{Session: got.Session, UID: key.UID}
}

// wait returns the files when all are settled.
func wait(t *testing.T, p *Prefetcher, n session.Name, paths []string) []session.File {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	files, done, err := p.Sessions.Wait(ctx, session.Root(), n, paths)
	if err != nil || !done {
		t.Fatalf("not settled: %v, %+v", err, files)
	}
	return files
}

func TestAnnouncedFilesAreFetchedManyAtOnceAndHeldUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 500)
		c := prefetchtest.NewCache(1 << 30)
		p, stop := running(t, Config{Width: func() int { return 64 }}, prefetchtest.NewTree(100_000, paths...), c)
		defer stop()
		n := open(t, p, one, 1000)
		began := time.Now()
		if out, _, err := p.Sessions.Preload(n, paths); err != nil || out.Accepted != 500 {
			t.Fatalf("%+v, %v", out, err)
		}
		for _, f := range wait(t, p, n, paths) {
			if f.State != "ready" {
				t.Errorf("%+v", f)
			}
		}
		// 500 files, 128 at once, 10 ms each: four rounds.
		if most, _ := c.Flights(); most != 128 || time.Since(began) > 60*time.Millisecond {
			t.Errorf("%d at once, %v", most, time.Since(began))
		}
		if _, held := c.Count(); held != 500 {
			t.Errorf("%d are held", held)
		}
		if released, _, err := p.Sessions.Release(n, paths); err != nil || released != 500 {
			t.Errorf("%d released, %v", released, err)
		}
		synctest.Wait()
		if _, held := c.Count(); held != 0 {
			t.Errorf("%d are still held", held)
		}
	})
}

func TestRoomIsTheBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 30)
		tree := prefetchtest.NewTree(1<<20, paths...)
		c := prefetchtest.NewCache(10 << 20) // room for eight or nine
		p, stop := running(t, Config{}, tree, c)
		defer stop()
		n := open(t, p, one, 5)
		next, inUse := 0, []string{}
		for step := 0; len(paths)-next > 0; step++ {
			if step > 100 {
				t.Fatal("it does not go on")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			out, _, err := p.Sessions.PreloadPatiently(ctx, n, paths[next:])
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			batch := paths[next : next+out.Accepted]
			next += out.Accepted
			inUse = append(inUse, batch...)
			wait(t, p, n, batch)
			if o := p.Overview(); o.Charged > o.Budget {
				t.Fatalf("%d of %d bytes are charged", o.Charged, o.Budget)
			}
			if _, _, err := p.Sessions.Release(n, inUse); err != nil {
				t.Fatal(err)
			}
			inUse = nil
		}
	})
}

func TestFolderIsOneUnitAndFailuresAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 30)
		c.Fail["data/bad/0001"] = oss.ErrChanged
		tree := prefetchtest.NewTree(1000, append(prefetchtest.Names("clip/a", 20), append(prefetchtest.Names("clip/b/c", 10), prefetchtest.Names("bad", 3)...)...)...)
		tree["huge"] = oss.Object{Key: "data/huge", Size: 2 << 30}
		p, stop := running(t, Config{}, tree, c)
		defer stop()
		n := open(t, p, one, 10)
		paths := []string{"clip", "missing", "huge", "bad"}
		if out, _, err := p.Sessions.Preload(n, paths); err != nil || out.Accepted != 4 {
			t.Fatalf("%+v, %v", out, err)
		}
		files := wait(t, p, n, paths)
		if f := files[0]; f.State != "ready" || f.Files != 30 || f.Bytes != 30_000 {
			t.Errorf("folder: %+v", f)
		}
		if f := files[1]; f.State != "failed" || rights.Errno(f.Err) != "ENOENT" || !errors.Is(f.Err, fs.ErrNotExist) {
			t.Errorf("missing: %+v", f)
		}
		if f := files[2]; f.State != "streamed" {
			t.Errorf("huge: %+v", f)
		}
		if f := files[3]; f.State != "failed" || rights.Errno(f.Err) != "ESTALE" {
			t.Errorf("bad: %+v", f)
		}
		if _, held := c.Count(); held != 30 {
			t.Errorf("%d are held, want those of the folder", held)
		}
	})
}

func TestWhatIsTooLargeToBeHeldIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		c := prefetchtest.NewCache(1 << 20)
		tree := prefetchtest.NewTree(2<<20, "a", "b", "c")
		tree["small"] = oss.Object{Key: "data/small", Size: 1000}
		p, stop := runningWith(t, Config{}, tree, c, slog.New(slog.NewTextHandler(&said, nil)))
		n := open(t, p, one, 10)
		paths := []string{"a", "b", "c", "small"}
		if _, _, err := p.Sessions.Preload(n, paths); err != nil {
			t.Fatal(err)
		}
		for i, f := range wait(t, p, n, paths) {
			if want := []string{"streamed", "streamed", "streamed", "ready"}[i]; f.State != want {
				t.Errorf("%+v, want %s", f, want)
			}
		}
		stop()
		if fetches, _ := c.Count(); fetches != 1 {
			t.Errorf("%d fetched, want the small file alone", fetches)
		}
		if text := said.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "bytes=2097152") || !strings.Contains(text, "cache-size") {
			t.Errorf("three files are too large, the log says\n%s", text)
		}
	})
}

func TestReleaseStopsWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 30)
		c.Slow(time.Hour)
		paths := prefetchtest.Names("train", 10)
		p, stop := running(t, Config{}, prefetchtest.NewTree(1000, paths...), c)
		defer stop()
		n := open(t, p, one, 10)
		if _, _, err := p.Sessions.Preload(n, paths); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if most, _ := c.Flights(); most != 10 {
			t.Fatalf("%d on their way", most)
		}
		if _, _, err := p.Sessions.Release(n, paths); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fetches, held := c.Count()
		_, inFlight := c.Flights()
		if charged := p.Overview().Charged; inFlight != 0 || held != 0 || charged != 0 {
			t.Errorf("%d of %d on their way, %d held, %d bytes charged", inFlight, fetches, held, charged)
		}
	})
}

func TestReadyIsNotSaidOfWhatTheCacheGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 30)
		paths := prefetchtest.Names("train", 3)
		tree := prefetchtest.NewTree(1000, paths...)
		p, stop := running(t, Config{}, tree, c)
		defer stop()
		n := open(t, p, one, 10)
		if _, _, err := p.Sessions.Preload(n, paths); err != nil {
			t.Fatal(err)
		}
		wait(t, p, n, paths)
		c.Slow(time.Minute)
		c.Lose(tree[paths[1]])
		time.Sleep(2 * keepEvery)
		files, err := p.Sessions.Status(context.Background(), session.Root(), n, paths)
		if err != nil || files[0].State != "ready" || files[1].State != "fetching" {
			t.Errorf("%+v, %v", files, err)
		}
		if files := wait(t, p, n, paths); files[1].State != "ready" {
			t.Errorf("it was not fetched again: %+v", files[1])
		}
	})
}

func TestLeaseEndsWithSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 30)
		paths := prefetchtest.Names("train", 3)
		p, stop := running(t, Config{}, prefetchtest.NewTree(1000, paths...), c)
		defer stop()
		n := open(t, p, one, 10)
		if _, _, err := p.Sessions.Preload(n, paths); err != nil {
			t.Fatal(err)
		}
		time.Sleep(session.DefaultLease - time.Minute)
		if _, held := c.Count(); held != 3 {
			t.Errorf("%d are held before the lease is over", held)
		}
		time.Sleep(2 * time.Minute)
		if _, held := c.Count(); held != 0 {
			t.Errorf("%d are held after it", held)
		}
		if _, err := p.Sessions.Quota(n); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("the session lives: %v", err)
		}
	})
}

// memoryStore is a Store.
type memoryStore struct {
	mu    sync.Mutex
	files map[session.Key][]byte
}

func (s *memoryStore) Where(session.Key) keep.Persistence {
	return keep.Persistence{Kind: keep.KindNode}
}

func (s *memoryStore) Load(_ context.Context, key session.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, ok := s.files[key]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}

func (s *memoryStore) Save(_ context.Context, key session.Key, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[key] = data
	return nil
}

func (s *memoryStore) Remove(_ context.Context, key session.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, key)
	return nil
}

func TestADaemonGoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{files: map[session.Key][]byte{}}
		paths := prefetchtest.Names("train", 20)
		tree := prefetchtest.NewTree(1000, paths...)
		p, stop := running(t, Config{Store: store}, tree, prefetchtest.NewCache(1<<30))
		n := open(t, p, one, 100)
		if _, _, err := p.Sessions.Preload(n, paths); err != nil {
			t.Fatal(err)
		}
		wait(t, p, n, paths)
		if _, _, err := p.Sessions.Release(n, paths[:5]); err != nil {
			t.Fatal(err)
		}
		stop() // the daemon goes; its cache with it

		c := prefetchtest.NewCache(1 << 30)
		p, stop = running(t, Config{Store: store}, tree, c)
		defer stop()
		got, err := p.Keeper.Open(t.Context(), one, session.Params{Instance: "i", Buffer: 100})
		if err != nil || got.Adopted != 15 || got.Persistence.Kind != keep.KindNode {
			t.Fatalf("%+v, %v", got, err)
		}
		wait(t, p, session.Name{Session: got.Session, UID: one.UID}, paths[5:])
		if fetches, held := c.Count(); fetches != 15 || held != 15 {
			t.Errorf("%d fetched, %d held", fetches, held)
		}
		if _, err := p.Keeper.Close(got.Session, one.UID, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keep.SaveEvery)
		store.mu.Lock()
		defer store.mu.Unlock()
		if len(store.files) != 0 {
			t.Error("a session that was closed is still saved")
		}
	})
}

// openWarm begins a job.
func openWarm(t *testing.T, p *Prefetcher, uid uint32, each bool) string {
	t.Helper()
	job, err := p.Warm.Open(budget.User{UID: uid}, each)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestWarmBringsFoldersOnceAndSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 30)
		c.Fail["data/bad/0001"] = oss.ErrAccessDenied
		tree := prefetchtest.NewTree(1000, append(prefetchtest.Names("good", 6000), prefetchtest.Names("bad", 3)...)...)
		p, stop := running(t, Config{}, tree, c)
		defer stop()
		for round, fetched := range []int64{6002_000, 0} {
			job := openWarm(t, p, 7, false)
			if n, err := p.Warm.Add(t.Context(), job, session.As(7, 7, session.Groups{}, session.Base{}), []string{"good", "bad", "missing"}, true); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			var all []warm.Result
			var last warm.Progress
			for !last.Finished {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				var err error
				if last, err = p.Warm.Progress(ctx, job, session.As(7, 7, session.Groups{}, session.Base{}), last.Next); err != nil {
					t.Fatal(err)
				}
				cancel()
				all = append(all, last.Results...)
			}
			states := map[string]string{}
			for _, r := range all {
				states[r.Path] = r.State
			}
			if len(all) != 4 || states["good"] != "ready" || states["bad"] != "partly" || states["bad/0001"] != "failed" || states["missing"] != "failed" {
				t.Errorf("%+v", all)
			}
			if last.DoneFiles != 6002 || last.FetchedBytes != fetched || last.Failed != 2 {
				t.Errorf("round %d: %+v", round, last)
			}
			if _, err := p.Warm.Progress(t.Context(), job, session.As(8, 8, session.Groups{}, session.Base{}), 0); !errors.Is(err, warm.ErrNoJob) {
				t.Errorf("another user's job: %v", err)
			}
			if err := p.Warm.Close(job, 7); err != nil {
				t.Error(err)
			}
		}
		if _, held := c.Count(); held != 0 {
			t.Errorf("%d are held", held)
		}
		measured := p.Paths.Measure(t.Context(), budget.User{}, session.Root(), []string{"good", "missing"})
		if m := measured[0]; m.Files != 6000 || m.FilesWarm != 6000 || m.BytesWarm != m.Bytes || measured[1].Error == "" {
			t.Errorf("after warming: %+v", measured)
		}
		results := p.Paths.Evict(t.Context(), session.Root(), []string{"good", "missing"})
		if results[0].Files != 6000 || results[0].Bytes != 6000_000 || results[1].Error == "" {
			t.Errorf("%+v", results)
		}
		if m := p.Paths.Measure(t.Context(), budget.User{}, session.Root(), []string{"good"})[0]; m.Files != 6000 || m.FilesWarm != 0 || m.BytesWarm != 0 {
			t.Errorf("after evicting: %+v", m)
		}
	})
}

func TestWarmDoesNotDisplaceWhatItBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(10 << 20)
		p, stop := running(t, Config{}, prefetchtest.NewTree(1<<20, prefetchtest.Names("d", 20)...), c)
		defer stop()
		job := openWarm(t, p, 0, false)
		if _, err := p.Warm.Add(t.Context(), job, session.As(0, 0, session.Groups{}, session.Base{}), []string{"d"}, true); err != nil {
			t.Fatal(err)
		}
		var last warm.Progress
		for !last.Finished {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			last, _ = p.Warm.Progress(ctx, job, session.As(0, 0, session.Groups{}, session.Base{}), last.Next)
			cancel()
		}
		room := int64(9<<20) / cache.Cost(oss.Object{Size: 1 << 20})
		if last.DoneFiles != room || last.Failed != 20-room {
			t.Errorf("%+v, want %d files", last, room)
		}
	})
}

// TestWhatIsReadInOrderIsFetchedAheadWhereAsked: what a session holds is no reason to guess.
func TestWhatIsReadInOrderIsFetchedAheadWhereAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 30)
		tree := prefetchtest.NewTree(1000, paths...)
		c := prefetchtest.NewCache(1 << 30)
		p, stop := running(t, Config{Prefix: "data/", Guess: true}, tree, c)
		defer stop()
		n := open(t, p, one, 100)
		if _, _, err := p.Sessions.Preload(n, paths[:10]); err != nil {
			t.Fatal(err)
		}
		wait(t, p, n, paths[:10])
		read := func(paths []string) (fetches int) {
			for _, path := range paths {
				c.Access(tree[path])
			}
			time.Sleep(time.Second)
			fetches, _ = c.Count()
			return fetches
		}
		if got := read(paths[:10]); got != 10 {
			t.Errorf("%d were fetched, want what was announced", got)
		}
		if got := read(paths[10:20]); got < 20 {
			t.Errorf("%d were fetched, want what follows as well", got)
		}
	})
}

func TestNothingIsGuessedUnlessAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 300)
		tree := prefetchtest.NewTree(1000, paths...)
		c := prefetchtest.NewCache(1 << 30)
		_, stop := running(t, Config{Prefix: "data/"}, tree, c)
		defer stop()
		for _, path := range paths {
			c.Access(tree[path])
		}
		if fetches, _ := c.Count(); fetches != 0 {
			t.Errorf("%d were fetched", fetches)
		}
	})
}

func TestManyClientsAtOnceAllComeToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prefetchtest.NewCache(1 << 20)
		tree := prefetchtest.Tree{}
		for i := range 200 {
			for k := range 5 {
				path := fmt.Sprintf("w%d/%d", i, k)
				tree[path] = oss.Object{Key: "data/" + path, Size: 4 << 10}
			}
		}
		p, stop := running(t, Config{}, tree, c)
		defer stop()
		var clients sync.WaitGroup
		for i := range 200 {
			clients.Go(func() {
				key := session.Key{UID: uint32(i % 7), Task: "t", Worker: i}
				got, err := p.Keeper.Open(context.Background(), key, session.Params{Buffer: 5})
				if err != nil {
					t.Error(err)
					return
				}
				n := session.Name{Session: got.Session, UID: key.UID}
				for k := range 5 {
					paths := []string{fmt.Sprintf("w%d/%d", i, k)}
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					if _, _, err := p.Sessions.PreloadPatiently(ctx, n, paths); err != nil {
						t.Error(err)
					}
					files, done, err := p.Sessions.Wait(ctx, session.Root(), n, paths)
					cancel()
					if err != nil || !done || files[0].State != "ready" {
						t.Errorf("client %d: %+v, %v, %v", i, files, done, err)
					}
					if _, _, err := p.Sessions.Release(n, paths); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
		synctest.Wait()
		if _, held := c.Count(); held != 0 {
			t.Errorf("%d are held at the end", held)
		}
	})
}

// TestOneUsersAnnouncementIsNotAnothers: each finds what that user may read, and is told no
// more than that.
func TestOneUsersAnnouncementIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "vault/x", "pub/x")
		denied := func(who session.Who, path string) bool { return !who.IsRoot() && strings.HasPrefix(path, "vault") }
		c := prefetchtest.NewCache(1 << 30)
		p, stop := running(t, Config{Rights: prefetchtest.Rights{Names: tree, Denied: denied}}, tree, c)
		defer stop()
		paths := []string{"vault/x", "pub/x"}
		for _, who := range []session.Who{session.Root(), session.As(7, 7, session.Groups{}, session.Base{})} {
			got, err := p.Keeper.Open(t.Context(), session.Key{UID: who.UID}, session.Params{Buffer: 10, Who: who})
			if err != nil {
				t.Fatal(err)
			}
			n := session.Name{Session: got.Session, UID: who.UID}
			if _, _, err := p.Sessions.Preload(n, paths); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			files, done, err := p.Sessions.Wait(ctx, who, n, paths)
			cancel()
			if err != nil || !done || !files[1].Ready {
				t.Fatal(files, done, err)
			}
			if f := files[0]; f.Ready != who.IsRoot() || !f.Ready && (f.Bytes != 0 || rights.Errno(f.Err) != "EACCES") {
				t.Errorf("user %d: %+v", who.UID, f)
			}
		}
		if got := c.Fetched(); len(got) != 2 {
			t.Errorf("fetched %v", got)
		}
	})
}

// TestASessionThatIsFoundAgainHasTheRightsOfWhoOpensIt: a file says nothing of rights.
func TestASessionThatIsFoundAgainHasTheRightsOfWhoOpensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "x")
		key := session.Key{UID: 7}
		data := fmt.Sprintf(`{"pailfs_session":2,"key":{"uid":7,"task":"","worker":0},"buffer":10,"lease_seconds":3600,"saved":%q}
{"path":"x"}
{"end":1}
`, time.Now().UTC().Format(time.RFC3339))
		denied := func(who session.Who, _ string) bool { return who.UID != 7 || who.Bits(0o700, 7, 7) == 0 }
		store := &memoryStore{files: map[session.Key][]byte{key: []byte(data)}}
		p, stop := running(t, Config{Store: store, Rights: prefetchtest.Rights{Names: tree, Denied: denied}}, tree, prefetchtest.NewCache(1<<30))
		defer stop()
		who := session.As(7, 7, session.Groups{}, session.Base{})
		got, err := p.Keeper.Open(t.Context(), key, session.Params{Buffer: 10, Who: who})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		files, done, err := p.Sessions.Wait(ctx, who, session.Name{Session: got.Session, UID: 7}, []string{"x"})
		if err != nil || !done || !files[0].Ready {
			t.Errorf("%+v, %t, %v", files, done, err)
		}
	})
}
