package systemtest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What was read once is read after a restart without asking the store for a byte
// of content, by the daemon first, and by the kernel alone once it was checked.
func TestRestartAsksForNoContent(t *testing.T) {
	for _, mode := range []struct {
		name  string
		flags []string
	}{
		{"ordinary", nil},
		{"immutable", []string{"--read-only", "--immutable"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			rng := newRandom(t)
			w := newWorld(t)
			w.crowd(rng, 60<<20)
			w.add("big", 33<<20)
			d := w.mount(mode.flags...)
			d.verify("cold", w.files, sequential)
			d.fetch(w.files)
			d.stop()
			for range rounds(t, 2) {
				before := w.gets()
				forget(w, nil)
				d = w.mount(mode.flags...)
				d.verify("after a restart", w.files, random, mapped, sequential)
				forget(w, w.files)
				d.verify("after a restart, again", w.files, whole, sequential)
				if n := w.gets() - before; n != 0 {
					t.Errorf("%d requests for content after a restart", n)
				}
				if mode.name == "ordinary" {
					big := w.files[len(w.files)-1:]
					d.eventually("the large file is checked and passed through", func() bool {
						before := d.status().FileSystem.Opens.Passthrough
						d.verify("large file", big, reopened)
						return d.status().FileSystem.Opens.Passthrough > before
					})
					forget(w, w.files)
					reads := d.status().FileSystem.Reads
					d.verify("passed through", big, sequential, random, whole)
					if n := d.status().FileSystem.Reads - reads; n != 0 {
						t.Errorf("the daemon answered %d reads of a file that is passed through", n)
					}
				}
				d.stop()
			}
		})
	}
}

// Opening, reading and closing leaves nothing behind on an immutable mount: no descriptor, no
// goroutine, no memory that grows. On one that is written to, a soak looks for it.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	rng := newRandom(t)
	w := newWorld(t)
	disk := newDisk(t, "ext4", 60)
	w.cache = disk.cache
	w.crowd(rng, 100<<20)
	d := w.mount("--read-only", "--immutable")
	type use struct {
		descriptors, goroutines int
		resident                int64
	}
	var uses []use
	for range rounds(t, 1) + 2 {
		j := w.job(rng)
		j.Reads = 100
		j.start(t).wait(d).sound(t, "cycle")
		// The kernel forgets, idle connections end, and memory settles.
		unix.Sync()
		d.eventually("nothing is open", func() bool { return d.status().FileSystem.OpenFiles == 0 })
		var u use
		least := use{1 << 30, 1 << 30, 1 << 40}
		for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			u = use{d.descriptors(), d.goroutines(), d.resident()}
			least = use{min(u.descriptors, least.descriptors), min(u.goroutines, least.goroutines), min(u.resident, least.resident)}
			if len(uses) > 0 && least.descriptors <= uses[0].descriptors && least.goroutines <= uses[0].goroutines {
				break
			}
		}
		t.Logf("%+v", least)
		uses = append(uses, least)
	}
	// How many connections to the store a cycle leaves idle, each with two goroutines,
	// differs: the first two show it. A leak goes on after them.
	settled := use{descriptors: max(uses[0].descriptors, uses[1].descriptors), goroutines: max(uses[0].goroutines, uses[1].goroutines)}
	last := uses[len(uses)-1]
	if last.descriptors > settled.descriptors+50 || last.goroutines > settled.goroutines+80 {
		t.Errorf("after the first two cycles %+v, after the last %+v", settled, last)
		d.dump()
	}
	const bound = 64<<20 + 150<<20
	if last.resident > bound {
		t.Errorf("%d bytes resident, want at most %d", last.resident, int64(bound))
	}
	d.stop()
}
