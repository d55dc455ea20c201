package cache

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
)

// faultFS is the real file system with faults. It remembers what was not synced,
// so that a loss of power can be played.
type faultFS struct {
	*disk.Local
	dir string
	mu  struct {
		sync.Mutex
		// These decide, if set, how an operation ends.
		openErr, readErr, writeErr, syncErr, removeErr func(name string) error
		// short makes writes stop after that many bytes, if it is not 0.
		short int
		// free replaces the free space, if it is not nil.
		free   *disk.Space
		writes []unsynced
		// created are the files whose names may be lost.
		created map[string]bool
		syncs   int
	}
}

// unsynced is a write that a loss of power may undo.
type unsynced struct {
	name   string
	off    int64
	before []byte
}

type faultFile struct {
	disk.LocalIO
	fs   *faultFS
	name string
}

func newFaultFS(dir string) (*faultFS, error) {
	disk, err := disk.OpenLocal(dir)
	if err != nil {
		return nil, err
	}
	f := &faultFS{Local: disk, dir: dir}
	f.mu.created = make(map[string]bool)
	return f, nil
}

func (f *faultFS) fault(which *func(string) error, name string) error {
	f.mu.Lock()
	decide := *which
	f.mu.Unlock()
	if decide == nil {
		return nil
	}
	return decide(name)
}

// set changes a fault while the tier runs.
func (f *faultFS) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faultFS) Open(name string, flag int) (disk.IO, error) {
	if err := f.fault(&f.mu.openErr, name); err != nil {
		return nil, err
	}
	_, err := os.Lstat(filepath.Join(f.dir, name))
	io, openErr := f.Local.Open(name, flag)
	if openErr != nil {
		return nil, openErr
	}
	if err != nil {
		f.set(func() { f.mu.created[name] = true })
	}
	return &faultFile{io.(disk.LocalIO), f, name}, nil
}

func (f *faultFS) Remove(name string) error {
	if err := f.fault(&f.mu.removeErr, name); err != nil {
		return err
	}
	return f.Local.Remove(name)
}

func (f *faultFS) Space() (disk.Space, error) {
	f.mu.Lock()
	free := f.mu.free
	f.mu.Unlock()
	if free != nil {
		return *free, nil
	}
	return f.Local.Space()
}

func (f *faultFS) Sync() error {
	if err := f.fault(&f.mu.syncErr, ""); err != nil {
		return err
	}
	f.set(func() {
		f.mu.writes, f.mu.created = nil, make(map[string]bool)
		f.mu.syncs++
	})
	return nil
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.fault(&f.fs.mu.readErr, f.name); err != nil {
		return 0, err
	}
	return f.LocalIO.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.fault(&f.fs.mu.writeErr, f.name); err != nil {
		f.fs.mu.Lock()
		short := f.fs.mu.short
		f.fs.mu.Unlock()
		n, _ := f.LocalIO.WriteAt(p[:min(short, len(p))], off)
		return n, err
	}
	before := make([]byte, len(p))
	_, _ = f.LocalIO.ReadAt(before, off)
	f.fs.set(func() { f.fs.mu.writes = append(f.fs.mu.writes, unsynced{f.name, off, before}) })
	return f.LocalIO.WriteAt(p, off)
}

// OpenDirect gives the direct writes of the file the same faults, and checks that
// they could be direct.
func (f *faultFile) OpenDirect() (disk.DirectWriter, error) { return faultyDirect{f}, nil }

type faultyDirect struct{ *faultFile }

func (d faultyDirect) WriteAt(p []byte, off int64) (int, error) {
	if off%content.PageSize != 0 || len(p)%content.PageSize != 0 || uintptr(unsafe.Pointer(&p[0]))%content.PageSize != 0 {
		return 0, unix.EINVAL
	}
	return d.faultFile.WriteAt(p, off)
}

// Close leaves the file open, which is closed on its own.
func (faultyDirect) Close() error { return nil }

func (f *faultFile) Sync() error {
	if err := f.fs.fault(&f.fs.mu.syncErr, f.name); err != nil {
		return err
	}
	f.fs.set(func() {
		kept := f.fs.mu.writes[:0]
		for _, w := range f.fs.mu.writes {
			if w.name != f.name {
				kept = append(kept, w)
			}
		}
		f.fs.mu.writes = kept
		delete(f.fs.mu.created, f.name)
		f.fs.mu.syncs++
	})
	return nil
}

// losePower undoes some of what was not synced, as rng likes.
func (f *faultFS) losePower(rng *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range slices.Backward(f.mu.writes) {

		if rng.IntN(3) == 0 {
			continue
		}
		file, err := os.OpenFile(filepath.Join(f.dir, w.name), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		n := 1 + rng.IntN(len(w.before))
		_, _ = file.WriteAt(w.before[:n], w.off)
		_ = file.Close()
	}
	for name := range f.mu.created {
		switch path := filepath.Join(f.dir, name); rng.IntN(3) {
		case 0:
			_ = os.Remove(path)
		case 1:
			_ = os.Truncate(path, 0)
		}
	}
}

// openFaulty opens a cache on a file system with faults.
func openFaulty(t testing.TB, s *fakeStore, cfg Config) (*Cache, *faultFS) {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 128 << 20
	}
	cfg.MinFreeBytes, cfg.MinFreeInodes = 1, 1
	var faults *faultFS
	c, err := open(cfg, s, s, nil, testLog(t), func(dir string) (_ disk.FileSystem, err error) {
		faults, err = newFaultFS(dir)
		return faults, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCache(t, c) })
	return c, faults
}

// crash ends the cache as a killed process would: nothing is written any more.
func (c *Cache) crash(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.stop()
	c.mu.flights.Wait()
	c.loops.Wait()
	c.settleIdle(0, c.memory.limit)
	tier := c.ssd
	tier.health.WriteFailed(errClosed) // the writers drop what they have
	tier.writer.queue.close()
	tier.writer.loops.Wait()
	tier.stop()
	tier.loops.Wait()
	tier.verifier.drop()
	tier.indexer.release()
	c.memory.close()
	for _, err := range []error{tier.indexer.index.Close(), tier.fs.Close(), tier.directory.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// settled reports whether nothing is on its way and nothing waits to be written. Who
// reads may have the bytes a moment before they are queued.
func settled(c *Cache) bool {
	for i := range c.objects.shards {
		shard := &c.objects.shards[i]
		shard.Lock()
		for _, o := range shard.table {
			o.mu.Lock()
			busy := o.mu.disk.writing > 0
			for _, seg := range o.mu.segments {
				busy = busy || seg != nil && slices.ContainsFunc(seg.extents, func(e *extent) bool { return e.flight != nil })
			}
			o.mu.Unlock()
			if busy {
				shard.Unlock()
				return false
			}
		}
		shard.Unlock()
	}
	return c.Stats().SSD.Queued == 0
}

// flush waits until everything that was read is on SSD, and indexed.
func flush(t testing.TB, c *Cache) {
	t.Helper()
	waitUntil(t, "the write queue is empty", func() bool { return settled(c) })
	waitUntil(t, "everything is indexed", func() bool {
		if err := c.ssd.indexer.commit(); err != nil {
			t.Fatal(err)
		}
		return c.Stats().SSD.Unindexed == 0
	})
}
