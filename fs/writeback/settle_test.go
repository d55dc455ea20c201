package writeback

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// list returns the names in a directory.
func (w *world) list(dir string) []string {
	w.Helper()
	var names []string
	for after := ""; ; {
		page, _, err := w.space.ReadDir(w.Context(), dir, after, 100)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.Fatal(err)
		}
		if len(page) == 0 {
			return names
		}
		for _, e := range page {
			names = append(names, e.Name)
		}
		after = page[len(page)-1].Cursor
	}
}

// deny makes the writing of a key fail, or succeed again.
func (f *fakeStore) deny(key string, denied bool) {
	f.Lock()
	defer f.Unlock()
	f.denied[key] = denied
}

// A file that took the name of a directory is published while objects below the old
// directory wait for copies that fail: the name must not become the directory's again.
func TestFileInPlaceOfARenamedDirectoryStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/d/y", "below")
		w.list("")
		w.list("d")
		w.store.deny("p/z", true)
		if _, err := w.space.Rename(t.Context(), "", "d", "", "e", 0); err != nil {
			t.Fatal(err)
		}
		w.write("", "d", "file")
		if _, err := w.space.Rename(t.Context(), "e", "y", "", "z", 0); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			time.Sleep(time.Second)
			if got, err := w.read("", "d"); err != nil || got != "file" {
				t.Fatalf("d holds %q, %v", got, err)
			}
			if got, want := w.list(""), []string{"d", "e", "z"}; !slices.Equal(got, want) {
				t.Fatalf("names are %q, want %q", got, want)
			}
		}
		if w.inBucket()["p/d"] != "file" || w.inBucket()["p/d/y"] == "" {
			t.Fatalf("the bucket holds %q: that is not the case to be tested", w.inBucket())
		}
		w.store.deny("p/z", false)
		w.drain()
		w.stop()
	})
}

// What somebody else puts into a directory while it is removed shows again.
func TestObjectOfOthersInARemovedDirectoryShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/d/y", "ours")
		if err := w.space.Unlink(t.Context(), "d", "y"); err != nil {
			t.Fatal(err)
		}
		if err := w.space.Rmdir(t.Context(), "", "d"); err != nil {
			t.Fatal(err)
		}
		w.store.put("p/d/y", "theirs")
		w.drain()
		time.Sleep(10 * time.Minute)
		if got, err := w.read("d", "y"); err != nil || got != "theirs" {
			t.Errorf("d/y holds %q, %v", got, err)
		}
		if got, want := w.list(""), []string{"d"}; !slices.Equal(got, want) {
			t.Errorf("names are %q, want %q", got, want)
		}
		w.stop()
	})
}

// slowTree is a base tree whose answers arrive late.
type slowTree struct {
	*manifest.Live
	wait time.Duration
}

func (s *slowTree) ReadDir(ctx context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	entries, valid, err := s.Live.ReadDir(ctx, dir, after, limit)
	wait := s.wait
	s.wait = 0
	time.Sleep(wait)
	return entries, valid, err
}

// A listing that began before a file was deleted, in whose place is a directory now,
// must not show the file when it arrives.
func TestListingAcrossADeletionShowsNothingDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		slow := &slowTree{Live: w.base}
		w.space.base = slow
		w.store.put("p/d", "file")
		w.store.deny("p/d", true)
		if err := w.space.Unlink(t.Context(), "", "d"); err != nil {
			t.Fatal(err)
		}
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if all := w.inBucket(); len(all) != 2 {
			t.Fatalf("the bucket holds %q: that is not the case to be tested", all)
		}
		w.base.Forget("", "d")
		w.store.deny("p/d", false)
		slow.wait = 10 * time.Minute
		if got, want := w.list(""), []string{"d"}; !slices.Equal(got, want) {
			t.Errorf("names are %q, want %q", got, want)
		}
		w.drain()
		w.stop()
	})
}

// A directory without a marker object is renamed and made anew at once: its name
// must not go with what was in it.
func TestDirectoryMadeInPlaceOfARenamedOneStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/d/x", "content")
		if _, err := w.space.Rename(t.Context(), "", "d", "", "e", 0); err != nil {
			t.Fatal(err)
		}
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.drain()
		time.Sleep(10 * time.Minute)
		if got, want := w.list(""), []string{"d", "e"}; !slices.Equal(got, want) {
			t.Errorf("names are %q, want %q", got, want)
		}
		want := map[string]string{"p/d/": "", "p/e/": "", "p/e/x": "content"}
		if diff := cmp.Diff(want, w.inBucket()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
		w.stop()
	})
}

// A published file that somebody still has mapped is given to the cache when that
// ends, also if nothing else happens in the space.
func TestFileIsAdoptedWhenItsMappingEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mapping, err := os.OpenFile(h.OSFile().Name(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mapping.WriteString("content"); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Release()
		time.Sleep(10 * time.Minute)
		if got := w.inBucket()["p/a"]; got != "content" {
			t.Fatalf("the bucket holds %q: that is not the case to be tested", got)
		}
		if _, staged := h.File().Content(); !staged {
			t.Error("the cache was given a file that somebody may write to")
		}
		if err := mapping.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, staged := h.File().Content(); staged {
			t.Error("the file was never given to the cache")
		}
		w.stop()
	})
}

// slowTake is a cache whose fetches take a while.
type slowTake struct {
	Cache
	takes int
}

func (c *slowTake) Take(ctx context.Context, obj oss.Object, dst string) error {
	c.takes++
	time.Sleep(time.Minute)
	return c.Cache.Take(ctx, obj, dst)
}

// An object that is opened for writing is fetched once, however long that takes: what
// the bucket shows of it meanwhile is no reason to forget that it is wanted.
func TestFetchForWritingIsNotForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/log", "before")
		cache := &slowTake{Cache: w.cache}
		w.space.cache = cache
		h, err := w.space.Open(t.Context(), "", "log", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if cache.takes != 1 {
			t.Errorf("the object was fetched %d times", cache.takes)
		}
		if _, err := h.Append(t.Context(), []byte(" and after")); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/log"]; got != "before and after" {
			t.Errorf("the bucket holds %q", got)
		}
		w.stop()
	})
}

// While the cache reads a published file to take it, others may ask for its size and
// its bytes.
func TestFileThatIsAdoptedAnswers(t *testing.T) {
	for _, forgetful := range []float64{0, 1} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.cache.forgetful = forgetful
			var asked atomic.Int64
			w.cache.adopting = func(context.Context) {
				answered := make(chan error, 1)
				go func() {
					e, _, err := w.space.Lookup(t.Context(), "", "a")
					if err == nil {
						_, err = e.File.Stat()
					}
					if err == nil {
						_, _, err = e.File.ReadAt(t.Context(), make([]byte, 3), 0)
					}
					answered <- err
				}()
				select {
				case err := <-answered:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Error("stat waits for the adoption")
				}
				asked.Add(1)
			}
			w.write("", "a", "content")
			w.drain()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if asked.Load() == 0 {
				t.Error("nothing was adopted: that is not the case to be tested")
			}
			w.stop()
		})
	}
}

// The cache reads all of a published file to take it: whoever opens the file meanwhile
// does not wait for that, and it is taken when he has let go.
func TestAdoptionGivesWayToAnOpen(t *testing.T) {
	for _, write := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			ended := 0
			w.cache.adopting = func(ctx context.Context) {
				if ended > 0 {
					return
				}
				e, _, err := w.space.Lookup(t.Context(), "", "a")
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					h, err := w.space.OpenFile(t.Context(), e.File, OpenOptions{Write: write})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Hour)
					h.Release()
				}()
				select {
				case <-ctx.Done():
					ended++
				case <-time.After(time.Minute):
					t.Error("the open waits for the adoption")
				}
			}
			w.write("", "a", "content")
			w.drain()
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if _, staged := w.content(t, "a"); ended != 1 || !staged {
				t.Errorf("%d adoptions gave way, want 1; staged: %v", ended, staged)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if _, staged := w.content(t, "a"); staged {
				t.Error("nothing was adopted after the file was closed")
			}
			w.stop()
		})
	}
}

// content returns what the content of a file of the root is.
func (w *world) content(t *testing.T, name string) (obj oss.Object, staged bool) {
	t.Helper()
	e, _, err := w.space.Lookup(t.Context(), "", name)
	if err != nil {
		t.Fatal(err)
	}
	if e.File == nil {
		return e.Object, false
	}
	return e.File.Content()
}

// An upload in one request tells the time of the object by the second of its answer.
// That of the listing takes its place, for those who have the file at hand as well, and
// nobody takes it for another version meanwhile.
func TestTimeOfAnUploadIsThatOfTheListing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		files := map[string]*File{}
		for i := range 6 {
			name := fmt.Sprint("f", i)
			w.write("", name, name)
			e, _, err := w.space.Lookup(t.Context(), "", name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = e.File
		}
		w.drain()
		rough := 0
		for name, f := range files {
			if st := f.state(); st.Published != w.store.objects["p/"+name].Object {
				rough++
			}
		}
		if rough == 0 {
			t.Fatal("every time is exact: that is not the case to be tested")
		}
		w.write("", "f0", "again")
		e, _, err := w.space.Lookup(t.Context(), "", "f0")
		if err != nil {
			t.Fatal(err)
		}
		files["f0"] = e.File // that of before may have been left to the bucket
		w.drain()
		time.Sleep(time.Hour)
		synctest.Wait()
		for name, f := range files {
			want := w.store.objects["p/"+name].Object
			if got, staged := f.Content(); staged || got != want {
				t.Errorf("%s is %v, staged %v; want %v", name, got, staged, want)
			}
		}
		if n := w.space.Status().Conflicts; len(n) > 0 {
			t.Errorf("conflicts: %v", n)
		}
		w.stop()
	})
}

// While many uploads are under way nothing is settled beside them, but not for ever.
func TestSettlingWaitsForUploads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.cache.forgetful = 0
		count := func(n int) {
			w.space.mu.Lock()
			defer w.space.mu.Unlock()
			w.space.mu.running += n
		}
		count(settleBusy)
		for round := range 2 {
			name := fmt.Sprint("f", round)
			w.write("", name, "content")
			w.drain()
			time.Sleep(settleWait - time.Second)
			synctest.Wait()
			if _, staged := w.content(t, name); !staged {
				t.Errorf("%s was adopted beside uploads", name)
			}
			if round == 0 {
				time.Sleep(2 * time.Second)
			} else {
				count(-settleBusy)
				time.Sleep(2 * settlePoll)
			}
			synctest.Wait()
			if _, staged := w.content(t, name); staged {
				t.Errorf("%s is still staged", name)
			}
		}
		w.stop()
	})
}

// A cache that takes a published file and then throws it away, since others had brought
// something else meanwhile, leaves no file behind that cannot be read.
func TestPublishedFileThatTheCacheThrowsAwayIsTheObject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.cache.loses = true
		w.write("d", "a", "hello")
		w.drain()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, err := w.read("d", "a"); err != nil || got != "hello" {
			t.Errorf("read %q, %v", got, err)
		}
		h, err := w.space.Open(t.Context(), "d", "a", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Append(t.Context(), []byte(", world")); err != nil {
			t.Fatal(err)
		}
		w.finish(h)
		w.drain()
		w.holds("p/d/a", "hello, world")
		w.stop()
	})
}

// Programs close thousands of small files a second: none of them wakes a loop that has
// nothing to do for it.
func TestASmallFileWakesNoLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "first", "content") // its loops are awake, and wait for the disk
		s := w.space
		synctest.Wait()
		if !s.watching.Load() {
			t.Fatal("the watcher does not look at the file that is written")
		}
		w.cancel()
		<-w.ended
		for _, c := range []chan struct{}{s.settleNow, s.watchNow} {
			select {
			case <-c:
			default:
			}
		}
		for i := range 10 {
			w.write("", fmt.Sprint("f", i), "content")
		}
		if len(s.settleNow) > 0 || len(s.watchNow) > 0 {
			t.Errorf("woken: settler %v, watcher %v, by files that wait for their publication", len(s.settleNow) > 0, len(s.watchNow) > 0)
		}
		w.stop()
	})
}

// TestCacheDropsWhatWasReplaced: of a checkpoint that is saved again and again the cache keeps the version
// that there is, and nothing when it is removed. Other bytes under another version go, not those that are
// there still.
func TestCacheDropsWhatWasReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.cache.forgetful = 0
		kept := func() (n int) {
			w.cache.mu.Lock()
			defer w.cache.mu.Unlock()
			return len(w.cache.content)
		}
		for _, content := range []string{"one", "two", "three", "three"} {
			w.write("", "ckpt", content)
			w.drain()
			time.Sleep(time.Minute)
			if n := kept(); n != 1 {
				t.Errorf("after %q was published the cache has %d versions, want one", content, n)
			}
			if got, err := w.read("", "ckpt"); got != content || err != nil {
				t.Errorf("reading %q, %v, want %q", got, err, content)
			}
		}
		w.write("", "ckpt.tmp", "four")
		w.drain()
		time.Sleep(time.Minute)
		if _, err := w.space.Rename(t.Context(), "", "ckpt.tmp", "", "ckpt", 0); err != nil {
			t.Fatal(err)
		}
		w.drain()
		time.Sleep(time.Minute)
		if got, err := w.read("", "ckpt"); got != "four" || err != nil {
			t.Errorf("reading %q, %v after the renaming", got, err)
		}
		if err := w.space.Unlink(t.Context(), "", "ckpt"); err != nil {
			t.Fatal(err)
		}
		w.drain()
		if n := kept(); n != 0 {
			t.Errorf("the cache has %d versions of what was removed", n)
		}
		w.stop()
	})
}
