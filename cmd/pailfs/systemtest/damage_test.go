package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A damage is something that happens to a cache directory while no daemon has it.
type damage struct {
	name string
	do   func(w *world, rng *rand.Rand) error
}

// toIndex damages the index.
func toIndex(name string, do func(path string, rng *rand.Rand) error) damage {
	return damage{name, func(w *world, rng *rand.Rand) error { return do(filepath.Join(w.cache, "index.db"), rng) }}
}

// toObjects damages some of the object files.
func toObjects(name string, do func(path string, info os.FileInfo, rng *rand.Rand) error) damage {
	return damage{name, func(w *world, rng *rand.Rand) error {
		for _, path := range w.objectFiles() {
			if rng.IntN(4) > 0 {
				continue
			}
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			if !info.Mode().IsRegular() || info.Size() == 0 {
				continue
			}
			if err := do(path, info, rng); err != nil {
				return err
			}
		}
		return nil
	}}
}

// damages are all there are.
func damages() []damage {
	return []damage{
		toIndex("index deleted", func(path string, _ *rand.Rand) error { return os.Remove(path) }),
		toIndex("index empty", func(path string, _ *rand.Rand) error { return os.Truncate(path, 0) }),
		toIndex("index cut off", func(path string, rng *rand.Rand) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, rng.Int64N(info.Size()))
		}),
		toIndex("index with flipped bits", func(path string, rng *rand.Rand) error { return flipBits(path, 1+rng.IntN(200), rng) }),
		toIndex("index with pages of zeros", func(path string, rng *rand.Rand) error {
			return overwrite(path, rng, func(p []byte) { clear(p) })
		}),
		toIndex("index with pages of noise", func(path string, rng *rand.Rand) error {
			return overwrite(path, rng, func(p []byte) { noise(p, rng) })
		}),
		toIndex("index with a page in another's place", func(path string, rng *rand.Rand) error {
			var last []byte
			return overwrite(path, rng, func(p []byte) {
				this := append([]byte(nil), p...)
				copy(p, last)
				last = this
			})
		}),
		toIndex("index replaced by noise", func(path string, rng *rand.Rand) error {
			p := make([]byte, 200_000)
			noise(p, rng)
			return os.WriteFile(path, p, 0o600)
		}),
		toObjects("objects with flipped bits", func(path string, _ os.FileInfo, rng *rand.Rand) error { return flipBits(path, 1+rng.IntN(5), rng) }),
		toObjects("objects cut off", func(path string, info os.FileInfo, rng *rand.Rand) error {
			return os.Truncate(path, rng.Int64N(info.Size()))
		}),
		toObjects("objects too long", func(path string, info os.FileInfo, rng *rand.Rand) error {
			return os.Truncate(path, info.Size()+1+rng.Int64N(100_000))
		}),
		toObjects("objects deleted", func(path string, _ os.FileInfo, _ *rand.Rand) error { return os.Remove(path) }),
		toObjects("objects that are holes", func(path string, info os.FileInfo, _ *rand.Rand) error {
			return os.WriteFile(path, make([]byte, info.Size()), 0o600)
		}),
		toObjects("objects with a hole", func(path string, info os.FileInfo, rng *rand.Rand) error {
			return edit(path, func(f *os.File) error {
				at := rng.Int64N(info.Size())
				return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, 1+rng.Int64N(info.Size()-at))
			})
		}),
		toObjects("objects that are directories", func(path string, _ os.FileInfo, _ *rand.Rand) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}),
		toObjects("objects that nobody may open", func(path string, _ os.FileInfo, _ *rand.Rand) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(filepath.Base(path), path) // to itself
		}),
		toObjects("objects that are pipes", func(path string, _ os.FileInfo, _ *rand.Rand) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return unix.Mkfifo(path, 0o600)
		}),
		{"objects in one another's place", func(w *world, rng *rand.Rand) error {
			paths := w.objectFiles()
			rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
			for i := 0; i+1 < len(paths)/2; i += 2 {
				if err := exchange(paths[i], paths[i+1]); err != nil {
					return err
				}
			}
			return nil
		}},
		{"objects of one size in one another's place", func(w *world, _ *rand.Rand) error {
			sizes := map[int64]string{}
			for _, path := range w.objectFiles() {
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				if other := sizes[info.Size()]; other != "" {
					if err := exchange(path, other); err != nil {
						return err
					}
				}
				sizes[info.Size()] = path
			}
			return nil
		}},
		{"no object directory", func(w *world, _ *rand.Rand) error { return os.RemoveAll(filepath.Join(w.cache, "objects")) }},
		{"things that are not ours", func(w *world, _ *rand.Rand) error {
			for _, name := range []string{"objects/readme", "objects/zz/yy", "objects/00/00/short", "stray"} {
				path := filepath.Join(w.cache, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					return err
				}
				if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// edit opens a file for the duration of do.
func edit(path string, do func(f *os.File) error) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f)
}

// flipBits flips n bits of a file.
func flipBits(path string, n int, rng *rand.Rand) error {
	return edit(path, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil || info.Size() == 0 {
			return err
		}
		for range n {
			at, b := rng.Int64N(info.Size()), []byte{0}
			if _, err := f.ReadAt(b, at); err != nil {
				return err
			}
			b[0] ^= 1 << rng.IntN(8)
			if _, err := f.WriteAt(b, at); err != nil {
				return err
			}
		}
		return nil
	})
}

// overwrite changes some pages of a file.
func overwrite(path string, rng *rand.Rand, change func(page []byte)) error {
	return edit(path, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil || info.Size() < 4096 {
			return err
		}
		page := make([]byte, 4096)
		for range 2 + rng.IntN(10) {
			at := rng.Int64N(info.Size()/4096) * 4096
			if _, err := f.ReadAt(page, at); err != nil {
				return err
			}
			change(page)
			if _, err := f.WriteAt(page, at); err != nil {
				return err
			}
		}
		return nil
	})
}

func noise(p []byte, rng *rand.Rand) {
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
}

// exchange lets two files change places.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// Whatever happens to a cache directory between two daemons costs requests, never
// a wrong byte, and no file stays outside the cache for it.
func TestDamagedCacheCostsSpeedOnly(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	w.add("same", 3<<20, 3<<20, 3<<20, 3<<20)
	w.add("big", 20<<20+777)
	w.add("middle", someSizes(rng, 4, 1<<20-2, 9<<20)...)
	w.add("small", someSizes(rng, 30, 0, 200_000)...)
	w.add("smallsame", 70_000, 70_000, 70_000, 70_000)
	d := w.mount()
	d.fetch(w.files)
	d.stop()

	kinds := damages()
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for round := range rounds(t, len(kinds)) {
		these := []damage{kinds[round%len(kinds)]}
		if round >= len(kinds) {
			these = append(these, kinds[rng.IntN(len(kinds))])
		}
		name := ""
		for _, damage := range these {
			name += damage.name + ", "
			if err := damage.do(w, rng); err != nil {
				t.Logf("%s: %v", damage.name, err) // the one before has left nothing to damage
			}
		}
		forget(w, nil)
		d := w.mount()
		way := []string{sequential, random, mapped, whole}[rng.IntN(4)]
		r := job{Root: w.at, Files: w.files, Readers: 8, Kinds: []string{way}, Seed: rng.Uint64(), Reads: 10}.start(t)
		r.wait(d).sound(t, name+"at once, "+way)
		d.verify(name+"everything", w.files, sequential)
		d.fetch(w.files)
		forget(w, w.files)
		d.verify(name+"everything from SSD", w.files, whole, sequential)
		s := d.status()
		t.Logf("%sdamaged %d, disk %s, passthrough %d", name, s.Cache.SSD.Damaged, s.Cache.SSD.State, s.FileSystem.Opens.Passthrough)
		if t.Failed() {
			t.Fatalf("%sin round %d", name, round)
		}
		if rng.IntN(2) == 0 {
			d.stop()
		} else {
			d.kill()
		}
	}
}

// An index that is older than the files it speaks of, as a restored backup leaves
// it, is as harmless as any other damage.
func TestOldIndexCostsSpeedOnly(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	// Less than half of the data has room, so files come and go.
	w.cache = newDisk(t, "ext4", 40).cache
	w.add("middle", someSizes(rng, 12, 4<<20, 9<<20)...)
	w.add("small", someSizes(rng, 30, 1, 200_000)...)
	var indexes [][]byte
	for round := range rounds(t, 3) {
		d := w.mount()
		r := job{Root: w.at, Files: w.files, Readers: 8, Kinds: allKinds, Seed: rng.Uint64(), Reads: 40}.start(t)
		r.wait(d).sound(t, "before")
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		d.kill()
		index := filepath.Join(w.cache, "index.db")
		now, err := os.ReadFile(index)
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, now)
		if err := os.WriteFile(index, indexes[rng.IntN(len(indexes))], 0o600); err != nil {
			t.Fatal(err)
		}
		forget(w, nil)
		d = w.mount()
		d.verify(fmt.Sprintf("round %d", round), w.files, random, whole, sequential)
		d.stop()
	}
}
