package systemtest

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ttl is how long names are believed in the tests that replace objects.
const ttl = time.Second

// replace stores a new version of a file, and lets it be expected.
func (w *world) replace(i int, size int64) {
	w.t.Helper()
	f := &w.files[i]
	v := version{Key: f.Key, Number: len(f.Versions) + 1, Size: size}
	w.put(v)
	f.Versions = append(f.Versions, v)
}

// newest returns the files with nothing but their last version.
func (w *world) newest() (files []file) {
	for _, f := range w.files {
		files = append(files, file{f.Key, f.Versions[len(f.Versions)-1:]})
	}
	return files
}

// Objects are replaced, by some of the same size, by shorter and by longer ones,
// while readers read them. Whatever is read through one open file is of one
// version; a version that is gone is ESTALE; and once names have expired, every
// open meets the newest.
func TestReplacedObjectsAreNeverMixed(t *testing.T) {
	for _, mode := range []struct {
		name  string
		flags []string
	}{
		{"passthrough", nil},
		{"without passthrough", []string{"--passthrough=off"}},
		{"memory alone", []string{"--cache-dir="}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			rng := newRandom(t)
			w := newWorld(t)
			w.add("big", 9<<20, 5<<20+1)
			w.add("middle", 1<<20, 1<<20+1, 3<<20, 2<<20+77)
			w.add("small", someSizes(rng, 10, 1, 200_000)...)
			d := w.mount(append([]string{"--metadata-ttl=" + ttl.String()}, mode.flags...)...)
			for round := range rounds(t, 2) {
				// The readers are told of the versions that they will meet.
				future := w.files
				w.files = slices.Clone(w.files)
				type change struct {
					file int
					size int64
				}
				var changes []change
				for range 30 {
					i := rng.IntN(len(future))
					size := future[i].Versions[len(future[i].Versions)-1].Size
					switch rng.IntN(4) {
					case 0:
						size = 1 + rng.Int64N(size)
					case 1:
						size += rng.Int64N(300_000)
					}
					changes = append(changes, change{i, size})
					v := version{Key: future[i].Key, Number: len(future[i].Versions) + 1, Size: size}
					future[i].Versions = append(slices.Clone(future[i].Versions), v)
				}
				j := w.job(rng)
				j.Files = future
				r := j.start(t)
				for _, c := range changes {
					time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
					w.replace(c.file, c.size)
				}
				r.tell()
				told := r.wait(d)
				told.sound(t, "while replacing", "read ESTALE", "SIGBUS")
				t.Logf("round %d: %d opens, %d reads, errors %v", round, told.Opens, told.Reads, told.Errors)

				time.Sleep(ttl + 100*time.Millisecond)
				for i := range w.files {
					w.files[i].Versions = future[i].Versions
				}
				d.verify("once names have expired", w.newest(), random, sequential)
				d.settle()
				forget(w, w.newest())
				d.verify("once names have expired, from SSD", w.newest(), whole, sequential)
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
			d.stop()
		})
	}
}

// A file that is open keeps its version, to the last byte of what is cached,
// whatever becomes of the object; what is not cached is ESTALE.
func TestOpenFilesKeepTheirVersion(t *testing.T) {
	w := newWorld(t)
	w.add("cached", 5<<20, 300_000)
	w.add("partly", 40<<20)
	d := w.mount("--metadata-ttl=" + ttl.String())
	// Not by reading: what was read stays with the mount's own pages at the next open.
	if out, err := exec.Command(program, "warm", w.path(w.files[0]), w.path(w.files[1])).CombinedOutput(); err != nil {
		t.Fatalf("warm: %v: %s", err, out)
	}
	d.eventually("the files are whole on SSD", func() bool { return d.isWhole(w.files[0]) && d.isWhole(w.files[1]) })
	before := d.status().FileSystem.Opens.Passthrough
	var open []*os.File
	for _, f := range w.files {
		o, err := os.Open(w.path(f))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		open = append(open, o)
	}
	if n := d.status().FileSystem.Opens.Passthrough - before; n != 1 && n != 2 { // the second may be partly
		t.Errorf("%d files were opened in passthrough, want the large one", n)
	}
	buf := make([]byte, 100_000)
	if _, err := open[2].ReadAt(buf, 20<<20); err != nil {
		t.Fatal(err)
	}
	d.settle() // what was read is on SSD: memory keeps what it likes
	w.replace(0, 5<<20)
	w.replace(1, 200_000)
	w.replace(2, 40<<20)
	time.Sleep(ttl + 100*time.Millisecond)
	forget(w, nil)

	for i, o := range open[:2] {
		v := w.files[i].Versions[0]
		got := make([]byte, v.Size)
		if _, err := o.ReadAt(got, 0); err != nil {
			t.Errorf("%q, which was whole: %v", v.Key, err)
		} else if v.wrong(got, 0) >= 0 {
			t.Error(v.explain(got, 0, w.files[i].Versions))
		}
	}
	old := w.files[2].Versions[0]
	if _, err := open[2].ReadAt(buf, 20<<20); err != nil {
		t.Errorf("what was cached: %v", err)
	} else if old.wrong(buf, 20<<20) >= 0 {
		t.Error(old.explain(buf, 20<<20, w.files[2].Versions))
	}
	if _, err := open[2].ReadAt(buf, 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("what was not cached: %v, want ESTALE", err)
	}
	d.verify("new opens", w.newest(), sequential, random)

	// The same once more with objects that are deleted.
	for _, f := range w.files {
		w.Delete(f.Key)
	}
	time.Sleep(ttl + 100*time.Millisecond)
	for _, f := range w.files {
		if _, err := os.Open(w.path(f)); !os.IsNotExist(err) {
			t.Errorf("open what was deleted: %v, want that it does not exist", err)
		}
	}
	for i, o := range open[:2] {
		v := w.files[i].Versions[0]
		got := make([]byte, v.Size)
		if _, err := o.ReadAt(got, 0); err != nil {
			t.Errorf("%q, which was whole, after deletion: %v", v.Key, err)
		} else if v.wrong(got, 0) >= 0 {
			t.Error(v.explain(got, 0, w.files[i].Versions))
		}
	}
	for i := range w.files {
		w.replace(i, 1_500_000)
	}
	time.Sleep(ttl + 100*time.Millisecond)
	d.verify("what was made anew", w.newest(), sequential, whole)
}
