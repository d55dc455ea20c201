package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// renamer changes files that were flushed, and knows that a removal leaves each of them an
// object. A content begins with the number of its file.
type renamer struct {
	*keeper
	// at has the file of which each key holds an object.
	at       map[string]string
	versions int
}

func newRenamer(t *testing.T, seed uint64, adopts bool) *renamer {
	t.Helper()
	r := &renamer{at: make(map[string]string), keeper: newKeeperIn(newWorldWith(t, seed, func(c *Config) {
		l := usualLimits
		l.inline = 3
		c.limits, c.Attrs = &l, true
	}), adopts)}
	r.store.seen = func(key string, content []byte) {
		if was, file := r.at[key], fileOf(string(content)); was != file {
			// What is published under an old name takes what a file has left there.
			r.at[key] = file
			if !slices.Contains(slices.Collect(maps.Values(r.at)), was) {
				delete(r.flushed, was)
			}
		}
	}
	r.store.gone = func(key string, content []byte) {
		file := fileOf(string(content))
		delete(r.at, key)
		r.log = append(r.log, "  removed "+key)
		if !r.flushed[file] || !r.lives(file) {
			return
		}
		for _, o := range r.store.objects {
			if fileOf(string(o.content)) == file {
				return
			}
		}
		r.Errorf("%s has no object any more: %s went with %s\n%s", file, content, key, strings.Join(r.log, "\n"))
	}
	return r
}

func fileOf(content string) string {
	file, _, _ := strings.Cut(content, ",")
	return file
}

// lives reports whether a file has a name. The store is locked.
func (r *renamer) lives(file string) bool {
	for _, content := range r.live {
		if fileOf(content) == file {
			return true
		}
	}
	return false
}

// rewrite writes the file at path once more, in place.
func (r *renamer) rewrite(path string) {
	r.Helper()
	r.versions++
	content := fmt.Sprintf("%s, written %d times", fileOf(r.live[path]), r.versions)
	r.change("write "+path+" again", func() { r.live[path] = content })
	dir, base := splitPath(path)
	h, err := r.space.Open(r.Context(), dir, base, OpenOptions{Write: true, Truncate: true})
	if err != nil {
		r.Fatal(err)
	}
	defer h.Release()
	if _, err := h.WriteAt(r.Context(), []byte(content), 0); err != nil {
		r.Fatal(err)
	}
	// A close tells that what was closed before is refused.
	if err := h.Flush(r.Context()); err != nil && !errors.Is(err, oss.ErrAccessDenied) {
		r.Fatal(err)
	}
}

// remove removes the file at path.
func (r *renamer) remove(path string) {
	r.Helper()
	r.change("unlink "+path, func() { delete(r.live, path) })
	dir, base := splitPath(path)
	r.unlink(dir, base)
}

// chmod gives the file at path another mode.
func (r *renamer) chmod(path string, mode uint32) {
	r.Helper()
	dir, base := splitPath(path)
	if _, err := r.space.SetAttr(r.Context(), dir, base, SetAttr{Mode: &mode}); err != nil {
		r.Fatal(err)
	}
	r.change("mode of "+path, func() {})
}

func (r *renamer) renameDir(from, to string) {
	r.Helper()
	r.change(from+" to "+to, func() {
		for path, content := range r.live {
			if strings.HasPrefix(path, from+"/") {
				delete(r.live, path)
				r.live[to+path[len(from):]] = content
			}
		}
	})
	if _, err := r.space.Rename(r.Context(), "", from, "", to, 0); err != nil {
		r.Fatal(err)
	}
}

func (r *renamer) drain() {
	r.Helper()
	r.world.drain()
	r.change("flushed", func() {
		for _, content := range r.live {
			r.flushed[fileOf(content)] = true
		}
	})
}

// ends drains, and compares the bucket with what should be there.
func (r *renamer) ends() {
	r.Helper()
	r.drain()
	for path, content := range r.live {
		r.holds("p/"+path, content)
	}
	r.published(len(r.live))
	r.stop()
}

// The ways in which the publication of a renamed file comes to stand behind the removal of its
// old name, or waits for long: the file is the only one in the end, and was p/d/a.
var laterPublications = map[string]func(r *renamer){
	"a second write":        func(r *renamer) { r.moveTo("d/a", "b"); r.rewrite("b") },
	"many writes":           func(r *renamer) { r.moveTo("d/a", "b"); r.rewrite("b"); r.rewrite("b"); r.rewrite("b") },
	"a mode":                func(r *renamer) { r.moveTo("d/a", "b"); r.chmod("b", 0o600) },
	"a write and a mode":    func(r *renamer) { r.moveTo("d/a", "b"); r.rewrite("b"); r.chmod("b", 0o600) },
	"written before":        func(r *renamer) { r.rewrite("d/a"); r.moveTo("d/a", "b"); r.rewrite("b") },
	"a third name":          func(r *renamer) { r.moveTo("d/a", "e/b"); r.moveTo("e/b", "c"); r.rewrite("c") },
	"written, a third name": func(r *renamer) { r.moveTo("d/a", "b"); r.rewrite("b"); r.moveTo("b", "c"); r.rewrite("c") },
	"below, and up again": func(r *renamer) {
		r.moveTo("d/a", "b")
		r.moveTo("b", "e/b")
		r.rewrite("e/b")
		r.moveTo("e/b", "c")
		r.rewrite("c")
	},
	"a directory, and written": func(r *renamer) { r.renameDir("d", "f"); r.moveTo("f/a", "b"); r.rewrite("b") },
	"others beside it": func(r *renamer) {
		r.moveTo("d/a", "b")
		r.make("d/x", "other")
		r.rewrite("b")
		r.moveTo("d/x", "d/y")
		r.rewrite("b")
	},
}

// A renamed file is written again, or given another mode, before it is published under its new
// name: its object stays until then, how long that may take and whoever restarts.
func TestLaterPublicationKeepsTheOnlyCopy(t *testing.T) {
	for name, act := range laterPublications {
		for _, adopts := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, adopted %v, killed %v", name, adopts, crash), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						r := newRenamer(t, 1, adopts)
						r.make("d/a", "file")
						r.drain()
						r.slowly(time.Minute)
						act(r)
						r.checkJournal()
						time.Sleep(20 * time.Second)
						if crash {
							r.crash(false)
						}
						r.ends()
					})
				})
			}
		}
	}
}

// It cannot be published for as long as the store refuses that: its object stays, a flush ends, of
// the old name too, and names what that waits for; and what is elsewhere goes on.
func TestLaterPublicationThatIsRefusedKeepsTheOnlyCopy(t *testing.T) {
	for name, act := range laterPublications {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %v", name, crash), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRenamer(t, 1, false)
					r.make("d/a", "file")
					r.make("g/x", "elsewhere")
					r.drain()
					refused := []string{"p/b", "p/c", "p/e/b"}
					for _, key := range refused {
						r.store.deny(key, true)
					}
					act(r)
					if crash {
						r.crash(false)
					}
					time.Sleep(10 * time.Minute)
					if r.inBucket()["p/d/a"] == "" {
						t.Errorf("p/d/a is gone")
					}
					for _, path := range []string{"", "d/a", "d"} {
						if err := r.flushes(path); !errors.Is(err, oss.ErrAccessDenied) || !strings.Contains(err.Error(), "d/a") {
							t.Errorf("flush of %q: %v, want %v and d/a in it", path, err, oss.ErrAccessDenied)
						}
					}
					r.rewrite("g/x")
					time.Sleep(time.Minute)
					r.holds("p/g/x", r.live["g/x"])
					for _, key := range refused {
						r.store.deny(key, false)
					}
					r.ends()
				})
			})
		}
	}
}

// A directory that is refused holds up what is in it, and nothing elsewhere, however much of it
// there is. A file that is moved into it keeps the object that it had.
func TestRefusedDirectoryHoldsUpNothingElsewhere(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", crash), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRenamer(t, 1, false)
				r.make("g/x", "elsewhere")
				r.make("e/y", "moved")
				r.make("e/z", "removed")
				r.drain()
				refused := []string{"p/d/a", "p/d/b", "p/d/c", "p/d/y"}
				for _, key := range refused {
					r.store.deny(key, true)
				}
				for _, path := range []string{"d/a", "d/b", "d/c"} {
					r.make(path, path)
					time.Sleep(2 * time.Second)
				}
				r.moveTo("e/y", "d/y")
				r.remove("e/z")
				if crash {
					r.crash(false)
				}
				time.Sleep(10 * time.Minute)
				r.rewrite("g/x")
				time.Sleep(time.Minute)
				r.holds("p/g/x", r.live["g/x"])
				bucket := r.inBucket()
				if bucket["p/e/y"] == "" {
					t.Error("p/e/y is gone, and is not yet p/d/y")
				}
				if bucket["p/e/z"] != "" {
					t.Error("p/e/z is there, and was removed")
				}
				for path, want := range map[string]string{"d": "d/a", "e": "e/y"} {
					if err := r.flushes(path); !errors.Is(err, oss.ErrAccessDenied) || !strings.Contains(err.Error(), want) {
						t.Errorf("flush of %q: %v, want %v and %s in it", path, err, oss.ErrAccessDenied, want)
					}
				}
				for _, key := range refused {
					r.store.deny(key, false)
				}
				r.ends()
			})
		})
	}
}

// A latest that cannot be replaced, since something else is refused below its directory, keeps the
// shards that it names.
func TestLatestBehindSomethingRefusedKeepsItsShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRenamer(t, 1, false)
		r.make("d/a", "shard 1")
		r.make("latest", "d/a")
		r.drain()
		r.store.deny("p/g/x", true)
		r.make("g/x", "refused")
		time.Sleep(time.Minute)
		r.make("e/a", "shard 2")
		time.Sleep(2 * time.Second)
		r.make("latest.tmp", "e/a")
		r.moveTo("latest.tmp", "latest")
		r.remove("d/a")
		time.Sleep(10 * time.Minute)
		r.holds("p/e/a", "shard 2")
		r.holds("p/latest", "d/a")
		r.holds("p/d/a", "shard 1")
		if err := r.flushes("d"); !errors.Is(err, oss.ErrAccessDenied) {
			t.Errorf("flush of the directory of the old shard: %v, want %v", err, oss.ErrAccessDenied)
		}
		r.store.deny("p/g/x", false)
		r.ends()
	})
}

// flushes is a flush of path, which must end in an hour.
func (w *world) flushes(path string) error {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
	defer cancel()
	err := w.space.Flush(ctx, path)
	if ctx.Err() != nil {
		w.Errorf("the flush of %q does not end: %v", path, err)
	}
	return err
}

// A flush of the old name waits for the publication, which is slow, and not for what fails for
// another reason.
func TestLaterPublicationIsAwaitedBesideAnotherFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRenamer(t, 1, false)
		if err := r.space.Mkdir(t.Context(), "e", "s", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		r.make("e/s/a", "file")
		r.drain()
		r.store.deny("p/g/x", true)
		r.make("g/x", "refused")
		time.Sleep(time.Minute)
		r.slowly(time.Minute)
		r.moveTo("e/s/a", "e/b")
		r.rewrite("e/b")
		if err := r.flushes("e/s"); err != nil {
			t.Errorf("flush: %v", err)
		}
		r.holds("p/e/b", r.live["e/b"])
		r.holds("p/e/s/a", "")
		r.slowly(0)
		r.store.deny("p/g/x", false)
		r.ends()
	})
}

// Files are renamed, written again, given modes, removed and replaced at random, requests fail or
// are refused for a while, and the daemon dies: no removal takes the last object of a file.
func TestSecondNameAndSecondWriteLeaveEveryFileAnObject(t *testing.T) {
	for seed := range modelSeeds() {
		bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 31))
			r := newRenamer(t, seed, rng.IntN(2) == 0)
			r.store.Lock()
			r.store.faults = []float64{0, 0.1, 0.4}[rng.IntN(3)]
			r.store.Unlock()
			paths := []string{"a", "b", "c", "d/a", "d/b", "e/a", "e/b"}
			denied, files := "", 0
			for range 40 {
				r.step(rng, paths, &denied, &files)
				time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(3000)) * time.Millisecond)
				r.checkJournal()
			}
			r.store.deny("p/"+denied, false)
			r.store.Lock()
			r.store.faults, r.store.slow = 0, 0
			r.store.Unlock()
			r.ends()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// step does something to one of paths.
func (r *renamer) step(rng *rand.Rand, paths []string, denied *string, files *int) {
	from, to := paths[rng.IntN(len(paths))], paths[rng.IntN(len(paths))]
	_, exists := r.live[from]
	switch what := rng.IntN(16); {
	case what < 3 && !exists:
		*files++
		r.make(from, fmt.Sprintf("file %d, new", *files))
	case what < 7 && exists && from != to:
		r.moveTo(from, to)
	case what < 10 && exists:
		r.rewrite(from)
	case what == 10 && exists:
		r.chmod(from, uint32(rng.IntN(0o1000)))
	case what == 11 && exists:
		r.remove(from)
	case what == 12:
		r.store.deny("p/"+*denied, false)
		if *denied = ""; rng.IntN(2) == 0 {
			*denied = to
			r.store.deny("p/"+to, true)
		}
		r.change("denied "+*denied, func() {})
	case what == 13:
		r.slowly(time.Duration(rng.IntN(3)*5) * time.Second)
	case what == 14 && rng.IntN(2) == 0:
		r.change("killed", func() {})
		r.crash(false)
	case what == 15 && *denied == "":
		r.drain()
	}
}
