package fs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

func TestImmutableMountOpensWithoutAsking(t *testing.T) {
	untilUndisturbed(t, opensWithoutAsking)
}

func opensWithoutAsking(t *testing.T, p *pages) (wrong string) {
	w := newWorld()
	for i := range 20 {
		w.put(fmt.Sprintf("f%d", i), 100_000)
	}
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	read := func() {
		for i := range 20 {
			if got := readAll(t, s.path(fmt.Sprintf("f%d", i))); len(got) != 100_000 {
				t.Fatalf("%d bytes", len(got))
			}
		}
	}
	read()
	for i := range 20 {
		p.look(t, s.path(fmt.Sprintf("f%d", i)))
	}
	requests := func() uint64 {
		return observed(t, s, "open") + observed(t, s, "release") + observed(t, s, "read") + observed(t, s, "lookup")
	}
	before := requests()
	for range 3 {
		read()
	}
	if n := requests() - before; n != 0 {
		wrong = fmt.Sprintf("opening, reading and closing 60 times made %d requests", n)
	}
	// The first open of all, which was answered that none is needed.
	if n := observed(t, s, "open"); n != 1 {
		t.Errorf("%d OPENs, want one", n)
	}
	if st := s.mount.Status(); !st.NoOpen.On || st.Mode != "immutable" || st.Passthrough.On {
		t.Errorf("status %+v", st)
	}
	return wrong
}

// observed returns how many requests of a kind were timed.
func observed(t testing.TB, s *site, op string) uint64 {
	t.Helper()
	families, err := s.reg.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() != "pailfs_fs_request_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == op {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	t.Fatalf("no operation %q", op)
	return 0
}

func TestNoFlushReachesUsInAnyMode(t *testing.T) {
	for _, cfg := range []Config{{}, {Immutable: true}} {
		w := newWorld()
		o := w.put("file", 5000)
		s := mounted(t, w, cfg, cache.Config{})
		for range 5 {
			same(t, readAll(t, s.path("file")), all(o))
		}
		if flushes := observed(t, s, "flush"); flushes > 1 {
			t.Errorf("immutable %v: 5 closes made %d FLUSHes", cfg.Immutable, flushes)
		}
	}
}

func TestNoOpenIsChosenByWhatIsMounted(t *testing.T) {
	const small, large = 115 << 10, 1 << 30
	for _, c := range []struct {
		name string
		cfg  Config
		want bool
	}{
		{"ordinary", Config{MeanSize: small}, false},
		{"immutable, nothing known", Config{Immutable: true}, true},
		{"immutable, small files", Config{Immutable: true, MeanSize: small}, true},
		{"immutable, large files", Config{Immutable: true, MeanSize: large}, false},
		{"large files, passthrough off", Config{Immutable: true, MeanSize: large, Passthrough: Off}, true},
		{"large files, forced on", Config{Immutable: true, MeanSize: large, NoOpen: On}, true},
		{"small files, forced off", Config{Immutable: true, MeanSize: small, NoOpen: Off}, false},
		{"small files, passthrough forced", Config{Immutable: true, MeanSize: small, Passthrough: On}, false},
	} {
		if got := chooseNoOpen(c.cfg); got.On != c.want || got.Reason == "" {
			t.Errorf("%s: %+v, want %v and a reason", c.name, got, c.want)
		}
	}
}

func TestImmutableMountWithOpenPassesThrough(t *testing.T) {
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Immutable: true, NoOpen: Off}, cache.Config{})
	makeWhole(t, s, o)
	same(t, readAll(t, s.path("file")), all(o))
	if st := s.mount.Status(); st.Opens.Passthrough != 1 || st.Reads != 0 {
		t.Errorf("%+v, %d READs", st.Opens, st.Reads)
	}
}

func TestImmutableMountAnswersESTALEForWhatChanged(t *testing.T) {
	w := newWorld()
	w.put("file", 1<<20)
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	inode64(t, s.path("file"))
	w.put("file", 1<<20)
	if _, err := os.ReadFile(s.path("file")); !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v, want ESTALE: the promise that nothing changes was broken", err)
	}
}

func TestPinsOfNoOpenExpire(t *testing.T) {
	w := newWorld()
	for i := range 30 {
		w.put(fmt.Sprintf("f%d", i), 1<<20)
	}
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	for i := range 30 {
		must(t, readBegin(s.path(fmt.Sprintf("f%d", i))))
	}
	// The kernel has its answer before we have put the handle aside.
	eventually(t, "all 30 are set aside", func() bool { return idleCount(s) == 30 })
	if n := pinned(s); n != 30 {
		t.Fatalf("%d pinned, want 30", n)
	}
	s.mount.fs.reads.idle.expire(time.Now().Add(-time.Hour))
	if n := pinned(s); n != 30 {
		t.Errorf("%d pinned after nothing expired", n)
	}
	s.mount.fs.reads.idle.expire(time.Now().Add(time.Hour))
	if n := pinned(s); n != 0 {
		t.Errorf("%d pinned after all expired", n)
	}
	must(t, readBegin(s.path("f7")))
	f, err := os.Open(s.path("f7"))
	must(t, err)
	dropPages(t, f)
	must(t, f.Close())
	must(t, readBegin(s.path("f7")))
	eventually(t, "the one read again is pinned again", func() bool { return pinned(s) == 1 })
	s.shrink(t)
	eventually(t, "an inode that is forgotten is unpinned", func() bool { return pinned(s) == 0 && idleCount(s) == 0 })
}

// readBegin reads the first byte of a file, of which the kernel fetches little.
func readBegin(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return errors.Join(err, f.Close())
}

// Training reads files whole: they must not keep room from those that come next.
func TestWhoReadsToTheEndLeavesNoPin(t *testing.T) {
	const size = 300_000
	w := newWorld()
	w.put("file", size)
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	node := inode64(t, s.path("file"))
	// No READ of the kernel's, of which nobody knows when it is over.
	read := func(off int64, length uint32) int {
		t.Helper()
		in := fuse.ReadIn{Offset: uint64(off), Size: length}
		in.NodeId = node
		result, status := s.mount.fs.reads.Read(nil, &in, make([]byte, length))
		if !status.Ok() {
			t.Fatal(status)
		}
		result.Done()
		return pinned(s)
	}
	if n := read(0, 100_000); n != 1 {
		t.Errorf("%d pinned after the beginning was read, want 1", n)
	}
	if n := read(100_000, 200_000); n != 0 || idleCount(s) != 0 {
		t.Errorf("%d pinned and %d idle after the end was read", n, idleCount(s))
	}
}

func TestPinsOfNoOpenAreBounded(t *testing.T) {
	w := newWorld()
	const files = idleMost + 200
	for i := range files {
		w.put(fmt.Sprintf("d/f%d", i), 64<<10)
	}
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := g; i < files; i += 8 {
				if err := readBegin(s.path(fmt.Sprintf("d/f%d", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "no more than the bound is pinned", func() bool { return pinned(s) <= idleMost })
	if pinned(s) == 0 {
		t.Error("nothing is pinned")
	}
}

func idleCount(s *site) int {
	h := &s.mount.fs.reads.idle
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.order.Len()
}
