package systemtest

import (
	"testing"
	"time"
)

// A daemon is killed at any instant while it is read, time and again. Whatever it
// left in the cache directory, every byte is right afterwards; and what was whole
// and indexed before is served without a request.
func TestNothingIsWrongAfterKill(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	// A disk of its own: what others leave of room on one would be a reason to evict.
	w.cache = newDisk(t, "ext4", 512).cache
	w.add("big", 24<<20+12345, 17<<20)
	w.add("middle", someSizes(rng, 6, 1<<20-2, 9<<20)...)
	w.add("small", someSizes(rng, 60, 0, 200_000)...)

	var indexed []file
	for round := range rounds(t, 4) {
		d := w.mount()
		r := w.job(rng).start(t)
		time.Sleep(time.Duration(rng.Int64N(int64(1500 * time.Millisecond))))
		d.kill()
		told := r.wait(d)
		told.sound(t, "while being killed", "SIGBUS")
		t.Logf("round %d: killed after %d reads of %d bytes", round, told.Reads, told.Bytes)

		d = w.mount()
		for _, f := range indexed {
			if !d.isWhole(f) {
				t.Errorf("%q was whole and indexed before the daemon was killed: %s", f.Key, d.tier(f))
			}
		}
		before := w.gets()
		d.verify("what had been whole", indexed, sequential)
		if n := w.gets() - before; n != 0 {
			t.Errorf("%d requests for what had been whole", n)
		}
		d.verify("everything after a kill", w.files, random, sequential)
		d.settle()
		forget(w, w.files)
		d.verify("everything from SSD", w.files, whole, sequential)
		// What was read just now may have been written just now.
		indexed = d.whole()
		d.settle()
		if t.Failed() {
			t.Fatalf("round %d failed", round)
		}
		s := d.status()
		if s.Cache.SSD.Evicted > 0 {
			t.Errorf("%d files were evicted from a disk that has room", s.Cache.SSD.Evicted)
		}
		t.Logf("round %d: %d of %d files whole, %d opens in passthrough", round, len(indexed), len(w.files), s.FileSystem.Opens.Passthrough)
		d.kill()
	}
}
