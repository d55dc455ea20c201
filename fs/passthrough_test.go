package fs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// makeWhole brings all of o onto the cache's disk.
func makeWhole(t testing.TB, s *site, o oss.Object) {
	t.Helper()
	must(t, s.cache.Fetch(context.Background(), o))
	eventually(t, o.Key+" is whole on disk", func() bool { return s.cache.Residency(o).Whole })
}

func TestWholeFilesAreReadWithoutUs(t *testing.T) {
	w := newWorld()
	o := w.put("file", 5<<20+77)
	s := mounted(t, w, Config{Passthrough: On}, cache.Config{})
	makeWhole(t, s, o)
	for range 3 {
		same(t, readAll(t, s.path("file")), all(o))
	}
	if st := s.mount.Status(); st.Reads != 0 || st.Opens.Passthrough != 3 || st.Opens.Cached != 0 {
		t.Errorf("%d READs, %+v; want no READ and three opens in passthrough", st.Reads, st.Opens)
	}
}

func TestSmallAndPartialFilesAreReadThroughUs(t *testing.T) {
	w := newWorld()
	small, partial := w.put("small", 1<<20-1), w.put("partial", 4<<20)
	s := mounted(t, w, Config{Passthrough: On, PassthroughMin: 1 << 20}, cache.Config{})
	makeWhole(t, s, small)
	for _, o := range []oss.Object{small, partial} {
		f, err := os.Open(s.path(o.Key))
		must(t, err)
		buf, want := make([]byte, 4096), make([]byte, 4096)
		_, err = f.ReadAt(buf, 8192)
		must(t, err)
		content(o, 8192, want)
		same(t, buf, want)
		must(t, f.Close())
	}
	if st := s.mount.Status(); st.Opens.Cached != 2 || st.Opens.Passthrough != 0 {
		t.Errorf("%+v, want two cached", st.Opens)
	}
}

func TestPassthroughCanBeSwitchedOff(t *testing.T) {
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Passthrough: Off}, cache.Config{})
	makeWhole(t, s, o)
	same(t, readAll(t, s.path("file")), all(o))
	st := s.mount.Status()
	if st.Opens.Passthrough != 0 || st.Passthrough.On || !strings.Contains(st.Passthrough.Reason, "configuration") {
		t.Errorf("%+v, %+v", st.Opens, st.Passthrough)
	}
}

// TestOpensOfOneFileShareAMode walks through what the kernel answers with EIO if
// it is mixed.
func TestOpensOfOneFileShareAMode(t *testing.T) {
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Passthrough: On}, cache.Config{})
	opens := func() Opens { return s.mount.Status().Opens }
	open := func() *os.File {
		t.Helper()
		f, err := os.Open(s.path("file"))
		must(t, err)
		return f
	}
	check := func(f *os.File) {
		t.Helper()
		got, want := make([]byte, 5000), make([]byte, 5000)
		_, err := f.ReadAt(got, 1<<20+3)
		must(t, err)
		content(o, 1<<20+3, want)
		same(t, got, want)
	}
	first := open() // not whole: cached
	check(first)
	makeWhole(t, s, o)
	second := open() // whole, but the first is open: cached too
	check(second)
	must(t, first.Close())
	third := open() // the second still is
	check(third)
	if got := opens(); got != (Opens{Cached: 3}) {
		t.Fatalf("%+v, want three cached", got)
	}
	must(t, second.Close())
	must(t, third.Close())
	eventually(t, "all are released", func() bool { return s.mount.Status().OpenFiles == 0 })
	fourth, fifth := open(), open()
	check(fourth)
	must(t, fourth.Close())
	check(fifth)
	sixth := open()
	check(sixth)
	if got := opens(); got != (Opens{Cached: 3, Passthrough: 3}) {
		t.Fatalf("%+v, want three cached and three passed through", got)
	}
	must(t, fifth.Close())
	must(t, sixth.Close())
}

func TestMappingOutlivesItsDescriptorInBothModes(t *testing.T) {
	w := newWorld()
	o := w.put("file", 2<<20)
	var p fakePages
	p.resident.Store(o.Size) // so that passthrough costs no disk
	s := mounted(t, w, Config{Passthrough: On, pages: p.pageCache()}, cache.Config{})
	for range 2 { // cached, then passed through
		var r differentialResult
		local := tempDir(t)
		must(t, os.WriteFile(local+"/file", all(o), 0o644))
		inReader(t, "mapping", differentialArgs{Mount: s.dir, Local: local, Paths: []string{"file"}}, &r)
		eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
		makeWhole(t, s, o)
	}
	if got := s.mount.Status().Opens; got.Cached == 0 || got.Passthrough == 0 {
		t.Errorf("%+v, want both modes", got)
	}
}

// TestOpensWhileFilesBecomeWhole is the race in which a library's count of
// backing files goes wrong and opens end with EIO.
func TestOpensWhileFilesBecomeWhole(t *testing.T) {
	const openers, files = 16, 8
	rounds := 12 * stressFactor()
	w := newWorld()
	s := mounted(t, w, Config{Passthrough: On, PassthroughMin: 1}, cache.Config{})
	var opened atomic.Int64
	for round := range rounds {
		var objects []oss.Object
		for i := range files {
			objects = append(objects, w.put(fmt.Sprintf("r%d/f%d", round, i), 64<<10))
		}
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for g := range openers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				for ctx.Err() == nil {
					o := objects[rng.IntN(files)]
					if err := openReadClose(s, o, rng); err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					opened.Add(1)
				}
			})
		}
		for _, o := range objects {
			for target := opened.Load() + 60; opened.Load() < target && !t.Failed(); {
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 200_000}, nil)
			}
			if err := s.cache.Fetch(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
		stop()
		wg.Wait()
		if t.Failed() {
			return
		}
	}
	st := s.mount.Status()
	t.Logf("%d opens: %+v, %d errors", opened.Load(), st.Opens, st.Errors)
	if st.Opens.Cached == 0 || st.Opens.Passthrough == 0 {
		t.Errorf("%+v: one mode was never used, nothing was raced", st.Opens)
	}
}

func openReadClose(s *site, o oss.Object, rng *rand.Rand) error {
	fd, err := unix.Open(s.path(o.Key), unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.Key, err)
	}
	defer func() { _ = unix.Close(fd) }() // only read
	if rng.IntN(3) > 0 {
		return nil
	}
	got, want := make([]byte, 512), make([]byte, 512)
	off := rng.Int64N(o.Size - 512)
	if _, err := unix.Pread(fd, got, off); err != nil {
		return fmt.Errorf("read %s: %w", o.Key, err)
	}
	content(o, off, want)
	if string(got) != string(want) {
		return fmt.Errorf("%s: wrong bytes at %d", o.Key, off)
	}
	return nil
}

func TestPassthroughIsRefusedWithAReason(t *testing.T) {
	w := newWorld()
	w.put("file", 1)
	dir := tempDir(t)
	overlay := dir + "/merged"
	for _, d := range []string{"lower", "upper", "work", "merged", "mnt"} {
		must(t, os.Mkdir(dir+"/"+d, 0o755))
	}
	must(t, unix.Mount("overlay", overlay, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)))
	defer func() { must(t, unix.Unmount(overlay, unix.MNT_DETACH)) }()
	cc := overlay + "/cache"
	must(t, os.Mkdir(cc, 0o700))
	s := mounted(t, w, Config{}, cache.Config{Dir: cc})
	st := s.mount.Status()
	if st.Passthrough.On || !strings.Contains(st.Passthrough.Reason, "stacked") {
		t.Errorf("a cache on overlayfs: %+v", st.Passthrough)
	}
	same(t, readAll(t, s.path("file")), all(oss.Object{Key: "file", ETag: fmt.Sprintf("%032X", 1), Size: 1}))
	must(t, s.mount.Unmount())
	_, err := Mount(Config{Mountpoint: dir + "/mnt", Passthrough: On}, w, s.cache, nil, testLog(t))
	if err == nil || !strings.Contains(err.Error(), "stacked") {
		t.Errorf("passthrough forced on such a cache: %v", err)
	}
}
