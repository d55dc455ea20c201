package systemtest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// world is an object store with objects, a place to mount it at and a place for
// the cache.
type world struct {
	*ossemutest.Emulator
	t     *testing.T
	at    string
	cache string
	files []file
	// daemons are all that were started.
	daemons []*daemon
}

// newWorld returns a world without objects.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Emulator: ossemutest.Start(t, ossemu.Config{Dir: t.TempDir()}),
		t:        t,
		cache:    filepath.Join(t.TempDir(), "cache"),
	}
	w.at = newMountPoint(t)
	return w
}

// add stores new objects of the given sizes. Their keys begin with prefix.
func (w *world) add(prefix string, sizes ...int64) (added []file) {
	w.t.Helper()
	for i, size := range sizes {
		v := version{Key: fmt.Sprintf("%s/%04d", prefix, i), Number: 1, Size: size}
		w.put(v)
		added = append(added, file{Key: v.Key, Versions: []version{v}})
	}
	w.files = append(w.files, added...)
	return added
}

func (w *world) put(v version) {
	w.t.Helper()
	w.Put(v.Key, v.content())
}

// gets is how many GETs of objects the store has answered.
func (w *world) gets() int64 { return w.Requests("GetObject") }

// faults sets the faults in force.
func (w *world) faults(faults ...ossemu.Fault) {
	w.t.Helper()
	if err := w.Server.SetFaults(faults); err != nil {
		w.t.Fatal(err)
	}
}

// path is where a file is seen.
func (w *world) path(f file) string { return filepath.Join(w.at, f.Key) }

// job is for readers of all files, in all ways.
func (w *world) job(rng *rand.Rand) job {
	return job{Root: w.at, Files: w.files, Readers: 8, Kinds: allKinds, Seed: rng.Uint64()}
}

// someSizes returns n sizes between least and most, some of them at the borders
// that matter.
func someSizes(rng *rand.Rand, n int, least, most int64) []int64 {
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = least + rng.Int64N(most-least+1)
		if rng.IntN(3) == 0 {
			sizes[i] = max(least, sizes[i]&^(64<<10-1)+int64(rng.IntN(3)-1))
		}
	}
	return sizes
}
