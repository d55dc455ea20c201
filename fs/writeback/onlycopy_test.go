package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// keeper knows which contents files have, and that the bucket keeps what a flush has said to
// be there.
type keeper struct {
	*world
	// live are the contents of files that have a name, by that; flushed are those of which a
	// flush has said that they are in the bucket.
	live    map[string]string
	flushed map[string]bool
	log     []string
}

// newKeeper returns a world whose cache takes files as adopts says.
func newKeeper(t *testing.T, seed uint64, adopts bool) *keeper {
	t.Helper()
	return newKeeperIn(worldOfFiles(t, seed), adopts)
}

func newKeeperIn(w *world, adopts bool) *keeper {
	w.Helper()
	k := &keeper{world: w, live: make(map[string]string), flushed: make(map[string]bool)}
	if k.cache.forgetful = 0; !adopts {
		k.cache.forgetful = 1
	}
	k.store.gone = func(key string, content []byte) {
		k.log = append(k.log, "  removed "+key)
		if !k.flushed[string(content)] || !slices.Contains(slices.Collect(maps.Values(k.live)), string(content)) {
			return
		}
		for _, o := range k.store.objects {
			if string(o.content) == string(content) {
				return
			}
		}
		k.Errorf("%q went with %s, and is nowhere else in the bucket: %q", content, key, k.log)
	}
	for _, dir := range []string{"d", "e", "g"} {
		if err := k.space.Mkdir(k.Context(), "", dir, SetAttr{}); err != nil {
			k.Fatal(err)
		}
	}
	return k
}

// change notes what files there are from now on.
func (k *keeper) change(how string, set func()) {
	k.store.Lock()
	defer k.store.Unlock()
	k.log = append(k.log, how)
	set()
}

func (k *keeper) make(path, content string) {
	k.Helper()
	dir, base := splitPath(path)
	k.write(dir, base, content)
	k.change("made "+path, func() { k.live[path] = content })
}

func (k *keeper) moveTo(from, to string) {
	k.Helper()
	k.change(from+" to "+to, func() { k.live[to] = k.live[from]; delete(k.live, from) })
	dir, base := splitPath(from)
	toDir, toBase := splitPath(to)
	if _, err := k.space.Rename(k.Context(), dir, base, toDir, toBase, 0); err != nil {
		k.Fatal(err)
	}
}

// drain waits until everything is in the bucket.
func (k *keeper) drain() {
	k.Helper()
	k.world.drain()
	k.change("flushed", func() {
		for _, content := range k.live {
			k.flushed[content] = true
		}
	})
}

// published waits until the bucket has so many files.
func (k *keeper) published(files int) {
	k.Helper()
	for range 100_000 {
		n := 0
		for key := range k.inBucket() {
			if key[len(key)-1] != '/' {
				n++
			}
		}
		if n == files {
			return
		}
		time.Sleep(time.Millisecond)
	}
	k.Fatalf("the bucket has %q, want %d files", k.inBucket(), files)
}

// ends drains, and compares the bucket with what should be there.
func (k *keeper) ends() {
	k.Helper()
	k.drain()
	for path, content := range k.live {
		k.holds("p/"+path, content)
	}
	k.published(len(k.live))
	k.stop()
}

// A file is published, and renamed again before it is published under its new name: the object
// that it had stays until it has another.
func TestOnlyCopyStaysUntilTheFileIsPublishedUnderItsLastName(t *testing.T) {
	for name, act := range map[string]func(k *keeper){
		"in its directory":             func(k *keeper) { k.moveTo("d/a", "d/b"); k.moveTo("d/b", "d/c") },
		"elsewhere":                    func(k *keeper) { k.moveTo("d/a", "d/b"); k.moveTo("d/b", "e/c") },
		"three times":                  func(k *keeper) { k.moveTo("d/a", "e/b"); k.moveTo("e/b", "d/c"); k.moveTo("d/c", "e/d") },
		"back":                         func(k *keeper) { k.moveTo("d/a", "d/b"); k.moveTo("d/b", "d/a") },
		"and something takes its name": func(k *keeper) { k.moveTo("d/a", "d/b"); k.make("d/a", "other"); k.moveTo("d/b", "d/c") },
		"over another":                 func(k *keeper) { k.make("e/x", "other"); k.moveTo("d/a", "d/b"); k.moveTo("d/b", "e/x") },
	} {
		for _, adopts := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, adopted %v, killed %v", name, adopts, crash), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						k := newKeeper(t, 1, adopts)
						k.make("d/a", "content")
						k.drain()
						act(k)
						k.checkJournal()
						if crash {
							k.crash(false)
						}
						k.ends()
					})
				})
			}
		}
	}
}

// So it is where a directory is renamed again.
func TestOnlyCopyStaysWhileItsDirectoryIsRenamedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newKeeper(t, 1, false)
		k.make("d/a", "content")
		k.drain()
		for _, names := range [][2]string{{"d", "f"}, {"f", "g"}} {
			k.change("directory", func() { k.live[names[1]+"/a"] = k.live[names[0]+"/a"]; delete(k.live, names[0]+"/a") })
			if _, err := k.space.Rename(t.Context(), "", names[0], "", names[1], 0); err != nil {
				t.Fatal(err)
			}
			k.checkJournal()
		}
		k.ends()
	})
}

// Somebody else takes the new name: ours is published beside it before the old one goes.
func TestOnlyCopyStaysWhileTheFileMeetsAConflict(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, func(t *testing.T) {
			k := newKeeper(t, seed, false)
			k.make("d/a", "content")
			k.drain()
			k.moveTo("d/a", "e/b")
			k.store.put("p/e/b", "their own")
			k.world.drain()
			all := k.inBucket()
			if _, old := all["p/d/a"]; old || all["p/e/b"] != "their own" || !slices.Contains(slices.Collect(maps.Values(all)), "content") {
				t.Errorf("the bucket has %q", all)
			}
			k.checkJournal()
			k.stop()
		})
	}
}

// What was published cannot be under its new name: the object stays, a flush says why it does not
// end, and what is elsewhere goes on.
func TestOnlyCopyStaysWhileTheFileCannotBePublished(t *testing.T) {
	for _, adopts := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			k := newKeeper(t, 1, adopts)
			k.make("d/a", "content")
			k.make("g/x", "first")
			k.drain()
			k.store.deny("p/e/b", true)
			k.moveTo("d/a", "e/b")
			time.Sleep(10 * time.Minute)
			k.holds("p/d/a", "content")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := k.space.Flush(ctx, ""); !errors.Is(err, oss.ErrAccessDenied) || ctx.Err() != nil {
				t.Errorf("flush: %v, want %v", err, oss.ErrAccessDenied)
			}
			k.write("g", "x", "second") // replaces what is there: it waits for all that can be done
			k.change("written g/x", func() { k.live["g/x"] = "second" })
			time.Sleep(time.Minute)
			k.holds("p/g/x", "second")
			k.holds("p/d/a", "content")
			k.crash(false)
			time.Sleep(10 * time.Minute)
			k.holds("p/d/a", "content")
			k.store.deny("p/e/b", false)
			k.ends()
		})
	}
}

// Another name helps, also one beside the old one.
func TestFileThatCannotBePublishedGetsAnotherName(t *testing.T) {
	for _, to := range []string{"d/c", "e/c", "c"} {
		bubble(t, func(t *testing.T) {
			k := newKeeper(t, 1, false)
			k.make("d/a", "content")
			k.drain()
			k.store.deny("p/e/b", true)
			k.moveTo("d/a", "e/b")
			time.Sleep(time.Minute)
			k.moveTo("e/b", to)
			k.ends()
		})
	}
}

// Files are renamed, removed and replaced at random, requests fail or are refused for a while, and
// the daemon dies: no file is without an object that had one.
func TestNoFileLosesItsOnlyCopy(t *testing.T) {
	for seed := range modelSeeds() {
		bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 30))
			k := newKeeper(t, seed, rng.IntN(2) == 0)
			k.store.Lock()
			k.store.faults = []float64{0, 0.1, 0.4}[rng.IntN(3)]
			k.store.Unlock()
			paths := []string{"a", "b", "d/a", "d/b", "d/c", "e/a", "e/b", "e/c"}
			denied := ""
			for i := range 40 {
				from, to := paths[rng.IntN(len(paths))], paths[rng.IntN(len(paths))]
				_, exists := k.live[from]
				switch what := rng.IntN(12); {
				case what < 3 && !exists:
					k.make(from, fmt.Sprintf("content %d", i))
				case what < 9 && exists && from != to:
					k.moveTo(from, to)
				case what == 9 && exists:
					k.change("unlink "+from, func() { delete(k.live, from) })
					dir, base := splitPath(from)
					if err := k.space.Unlink(t.Context(), dir, base); err != nil {
						t.Fatal(err)
					}
				case what == 10:
					k.store.deny("p/"+denied, false)
					if denied = ""; rng.IntN(2) == 0 {
						denied = to
						k.store.deny("p/"+denied, true)
					}
					k.change("denied "+denied, func() {})
				case what == 11 && rng.IntN(3) == 0:
					k.change("killed", func() {})
					k.crash(false)
				case what == 11 && denied == "":
					k.drain()
				}
				time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(3000)) * time.Millisecond)
				k.checkJournal()
			}
			k.store.deny("p/"+denied, false)
			k.store.Lock()
			k.store.faults = 0
			k.store.Unlock()
			k.ends()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestADirectoryThatTakesAPlaceKeepsWhatIsPutThere: a file gets the name of an object in the same
// record that puts off the removal of that object.
func TestADirectoryThatTakesAPlaceKeepsWhatIsPutThere(t *testing.T) {
	for _, adopts := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			k := newKeeper(t, 1, adopts)
			k.make("d/b", "first")
			k.drain()
			time.Sleep(time.Hour)
			k.moveTo("d/b", "g/a")
			k.make("g/b", "second")
			if err := k.space.Rmdir(t.Context(), "", "d"); err != nil {
				t.Fatal(err)
			}
			if _, err := k.space.Rename(t.Context(), "", "g", "", "d", 0); err != nil {
				t.Fatal(err)
			}
			k.checkJournal()
			k.crash(false)
			k.world.drain()
			if got := k.inBucket(); got["p/d/b"] != "second" || got["p/d/a"] != "first" {
				t.Errorf("the bucket has %q (adopts %v)", got, adopts)
			}
			k.stop()
		})
	}
}
