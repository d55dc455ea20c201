package writeback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	metadata "github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
)

// fakeCache keeps files whole, as long as it likes.
type fakeCache struct {
	bucket oss.Bucket
	// forgetful is the share of files that it does not want.
	forgetful float64
	// asked counts the bytes that it should make room for, gives is what it says that
	// it freed.
	asked, gives atomic.Int64
	// fetched counts the bytes that were read of what it has not, and those of Take; pins
	// those who want something kept.
	fetched, pins atomic.Int64
	rand          *rand.Rand
	// loses makes it throw away what it has taken, and fail.
	loses bool
	// adopting, if set, is called while a file is taken.
	adopting func(ctx context.Context)

	mu      sync.Mutex
	content map[oss.Object][]byte
}

func (c *fakeCache) Take(ctx context.Context, obj oss.Object, dst string) error {
	c.mu.Lock()
	b, ok := c.content[obj]
	delete(c.content, obj)
	c.mu.Unlock()
	if !ok {
		b = make([]byte, obj.Size)
		c.fetched.Add(obj.Size)
		if len(b) > 0 {
			if _, err := c.bucket.ReadRange(ctx, oss.RangeRequest{Object: obj, Buffer: b}); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(dst, b, 0o600)
}

// get returns the content of an object that the cache has.
func (c *fakeCache) get(obj oss.Object) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.content[obj]
	return b, ok
}

func (c *fakeCache) Adopt(ctx context.Context, obj oss.Object, crc uint64, path string) (bool, error) {
	if c.adopting != nil {
		c.adopting(ctx)
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if int64(len(b)) != obj.Size || crc64.Checksum(b, crcTable) != crc {
		return false, oss.ErrCorrupted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loses {
		return false, errors.Join(oss.ErrCorrupted, os.Remove(path))
	}
	if c.rand.Float64() < c.forgetful {
		return false, nil
	}
	c.content[obj] = b
	return true, os.Remove(path)
}

func (c *fakeCache) Whole(obj oss.Object) bool {
	_, ok := c.get(obj)
	return ok
}

func (c *fakeCache) ReadAt(ctx context.Context, obj oss.Object, p []byte, off int64) (int, error) {
	if b, ok := c.get(obj); ok {
		return copy(p, b[min(off, int64(len(b))):]), nil
	}
	n := min(int64(len(p)), obj.Size-off)
	if n <= 0 {
		return 0, io.EOF
	}
	c.fetched.Add(n)
	if _, err := c.bucket.ReadRange(ctx, oss.RangeRequest{Object: obj, Offset: off, Buffer: p[:n]}); err != nil {
		return 0, err
	}
	return int(n), nil
}

func (c *fakeCache) Pin(oss.Object) (done func()) {
	c.pins.Add(1)
	return func() { c.pins.Add(-1) }
}

func (c *fakeCache) Drop(obj oss.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.content, func(has oss.Object, _ []byte) bool { return state.SameBytes(has, obj) })
}

func (c *fakeCache) MakeRoom(bytes int64) int64 {
	c.asked.Add(bytes)
	return c.gives.Load()
}

// shadowDisk knows what every file had when it was synced last.
type shadowDisk struct {
	sync.Mutex
	content map[string][]byte
	// names are those that were in a directory when it was synced.
	names map[string]bool
	// fail makes every sync fail, failDir every sync of a directory.
	fail, failDir error
	// slow is a file of which a sync takes a minute. Then late is called, if it is set.
	slow string
	late func()
	// unwritable, if set, is what every write to the journal fails with.
	unwritable error
	// wrote has where writes to the journal began, and where they ended.
	wrote [][2]int64
	// syncing, if set, is called when a file is brought to the disk.
	syncing func(f *os.File)
	// full says that nothing is free.
	full bool
	// onlySynced lets a loss of power take everything that was not synced.
	onlySynced bool
	// real brings files to the real disk as well.
	real bool
}

func (d *shadowDisk) WriteAt(f *os.File, b []byte, off int64) error {
	d.Lock()
	err := d.unwritable
	d.wrote = append(d.wrote, [2]int64{off, off + int64(len(b))})
	d.Unlock()
	if err != nil {
		return err
	}
	return realDisk{}.WriteAt(f, b, off)
}

func (d *shadowDisk) Sync(f *os.File) error {
	d.Lock()
	if syncing := d.syncing; syncing != nil {
		d.Unlock()
		syncing(f)
		d.Lock()
	}
	if d.slow != "" && f.Name() == d.slow {
		late := d.late
		d.Unlock()
		time.Sleep(time.Minute)
		if late != nil {
			defer late()
		}
		d.Lock()
	}
	defer d.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if d.real {
		if err := (realDisk{}).Sync(f); err != nil {
			return err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, info.Size())
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) || n != len(b) {
		return fmt.Errorf("read %d of %d: %w", n, len(b), err)
	}
	// The name may have changed since it was opened: the file counts.
	var ino string
	if ino, err = inode(f); err != nil {
		return err
	}
	d.content[ino] = b
	return nil
}

func (d *shadowDisk) SyncDir(path string) error {
	d.Lock()
	defer d.Unlock()
	if d.failDir != nil {
		return d.failDir
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		d.names[filepath.Join(path, e.Name())] = true
	}
	return err
}

// room says that there is plenty, unless the test says otherwise.
func (d *shadowDisk) room(string) (size, free int64, err error) {
	d.Lock()
	defer d.Unlock()
	if d.full {
		return 1 << 40, 0, nil
	}
	return 1 << 40, 1 << 39, nil
}

func inode(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d", inodeOf(info)), nil
}

// world is a bucket and a machine that mounts it, and may be switched off.
type world struct {
	*testing.T
	rand  *rand.Rand
	cfg   Config
	store *fakeStore
	root  string
	runs  int
	boots int
	disk  *shadowDisk
	log   *slog.Logger

	bucket *fakeBucket
	base   *manifest.Live
	// told is base with what the metadata of objects says, if that is kept.
	told   *metadata.Tree
	cache  *fakeCache
	space  *Space
	cancel context.CancelFunc
	ended  chan struct{}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	return newWorldWith(t, seed, func(*Config) {})
}

// newWorldWith returns a world with another configuration.
func newWorldWith(t *testing.T, seed uint64, change func(*Config)) *world {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{T: t, rand: r, root: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() && os.Getenv("PAILFS_TEST_LOG") != "" {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w.store = newFakeStore(rand.New(rand.NewPCG(seed, 2)))
	w.cfg = Config{Dir: filepath.Join(w.root, "0"), Endpoint: "e", Bucket: "b", Prefix: "p/", Host: "node"}
	change(&w.cfg)
	if err := os.Mkdir(w.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.start()
	return w
}

// start mounts.
func (w *world) start() {
	w.Helper()
	w.startWith(make(map[string][]byte))
}

// startWith mounts where files have that content on the disk, by inode.
func (w *world) startWith(synced map[string][]byte) {
	w.Helper()
	w.bucket = &fakeBucket{fakeStore: w.store}
	w.disk = &shadowDisk{content: synced, names: make(map[string]bool)}
	var err error
	w.base, err = manifest.NewLive(manifest.LiveConfig{Prefix: w.cfg.Prefix}, w.bucket, prometheus.NewRegistry(), w.log)
	if err != nil {
		w.Fatal(err)
	}
	w.cache = &fakeCache{bucket: w.bucket, forgetful: 0.3, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 3)), content: make(map[oss.Object][]byte)}
	var shown manifest.Tree = w.base
	cfg := w.cfg
	if cfg.Attrs {
		w.told, err = metadata.New(metadata.Config{Prefix: cfg.Prefix, Markers: true}, w.base, w.bucket, w.bucket, new(notes), nil)
		if err != nil {
			w.Fatal(err)
		}
		cfg.Noted = w.told.Noted
		shown = w.told
	}
	w.space, err = open(cfg, shown, w.bucket, w.cache, nil, w.log, w.disk, fmt.Sprintf("boot-%d", w.boots))
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	w.cancel, w.ended = cancel, make(chan struct{})
	space, ended := w.space, w.ended
	go func() {
		defer close(ended)
		_ = space.Run(ctx) // it never fails
	}()
}

// notes remembers what was asked of objects until the next start; as in the cache, the
// time of a version is no part of its name.
type notes struct{ sync.Map }

func (n *notes) Note(obj oss.Object) ([]byte, bool) {
	obj.ModTime = time.Time{}
	note, ok := n.Load(obj)
	if !ok {
		return nil, false
	}
	return note.([]byte), true
}

func (n *notes) SetNote(obj oss.Object, note []byte) {
	obj.ModTime = time.Time{}
	n.Store(obj, note)
}

// closeBase closes the base tree.
func (w *world) closeBase() {
	w.Helper()
	if w.told != nil {
		if err := w.told.Close(); err != nil {
			w.Fatal(err)
		}
		w.told = nil
	}
	if err := w.base.Close(); err != nil {
		w.Fatal(err)
	}
}

// stop unmounts in order, and checks that the journal says what the state is.
func (w *world) stop() {
	w.Helper()
	w.cancel()
	<-w.ended
	w.checkJournal()
	if err := w.space.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	w.closeBase()
}

// crash stops the daemon as kill -9 does, or the machine, and starts anew. Requests
// in flight are carried out or not.
func (w *world) crash(powerLost bool) {
	w.Helper()
	w.runs++
	next := filepath.Join(w.root, fmt.Sprint(w.runs))
	// Nothing may be written to a file while it is copied.
	release := w.space.journal.Hold()
	synced, err := w.copyDir(w.cfg.Dir, next, powerLost)
	w.bucket.kill()
	release()
	if err != nil {
		w.Fatal(err)
	}
	w.cancel()
	<-w.ended
	if err := w.space.Close(); err != nil && !powerLost {
		w.Fatalf("close: %v", err)
	}
	w.closeBase()
	w.cfg.Dir = next
	if powerLost {
		w.boots++
	}
	w.startWith(synced)
}

// copyDir copies a staging directory as it is, or as it would be after the loss of
// power, and returns what is on the disk of the copies.
func (w *world) copyDir(from, to string, powerLost bool) (synced map[string][]byte, err error) {
	w.disk.Lock()
	defer w.disk.Unlock()
	synced = make(map[string][]byte)
	err = filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if e.IsDir() {
			return os.Mkdir(dst, 0o700)
		}
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		ino, err := inode(f)
		if err != nil {
			return err
		}
		kept, known := w.disk.content[ino]
		if powerLost {
			if !known && (w.disk.onlySynced || w.rand.IntN(2) == 0) {
				return nil
			}
			// What was not synced may be there or not.
			if w.disk.onlySynced || w.rand.IntN(3) > 0 || !bytes.HasPrefix(b, kept) {
				b = kept
			} else {
				b = b[:len(kept)+w.rand.IntN(len(b)-len(kept)+1)]
			}
		}
		if err := os.WriteFile(dst, b, 0o600); err != nil {
			return err
		}
		copied, err := os.Stat(dst)
		switch {
		case err != nil:
			return err
		case powerLost:
			synced[fmt.Sprint(inodeOf(copied))] = b
		case known:
			synced[fmt.Sprint(inodeOf(copied))] = kept
		}
		return os.Chtimes(dst, time.Time{}, info.ModTime())
	})
	return synced, err
}

// records gives every record of the journal to each.
func (w *world) records(each func(r state.Record)) {
	w.Helper()
	file, err := os.Open(filepath.Join(w.cfg.Dir, journal.Name))
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	if _, _, err := state.Replay(file, w.space.journal.Size(), func(r state.Record, _ int64) error { each(r); return nil }); err != nil {
		w.Fatal(err)
	}
}

// drain waits until everything is published.
func (w *world) drain() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 6*time.Hour)
	defer cancel()
	if err := w.space.Flush(ctx, ""); err != nil {
		w.Fatalf("flush: %v\npending: %+v", err, w.space.Pending("", 10))
	}
}

// checkJournal compares the state with what a restart would make of the journal.
func (w *world) checkJournal() {
	w.Helper()
	s := w.space
	for {
		// Nothing is written under the lock of the state: a compaction takes them the other way.
		end := s.journal.End()
		if err := s.journal.Write(end); err != nil {
			w.Fatal(err)
		}
		release := s.journal.Hold()
		s.mu.Lock()
		if s.journal.End() == end {
			defer release()
			defer s.mu.Unlock()
			break
		}
		s.mu.Unlock()
		release()
	}
	file, err := os.Open(filepath.Join(w.cfg.Dir, journal.Name))
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	replayed := state.NewState()
	_, _, rest, err := load(file, replayed)
	if err != nil || rest != 0 {
		w.Fatalf("replay: %v, %d bytes left over", err, rest)
	}
	if diff := compareStates(s.mu.State, replayed); diff != "" {
		w.Fatalf("a replay of the journal differs (-live +replayed):\n%s", diff)
	}
	for _, st := range []*state.State{s.mu.State, replayed} {
		w.checkDepends(st)
		checkTally(w.T, st)
	}
}

// checkDepends compares who needs an object with what a look at all files says.
func (w *world) checkDepends(st *state.State) {
	w.Helper()
	need := make(map[string][]order.FileID)
	for id, f := range st.Files {
		keys := []string{f.Object.Key}
		if f.Partial != nil {
			keys = append(keys, f.Partial.Base.Key)
		}
		for _, key := range slices.Compact(keys) {
			if f.DisplacedNow() && f.Elsewhere(key, st.Keys[key], f.Linked || st.KeptOf[id] != 0) {
				need[key] = append(need[key], id)
			}
		}
	}
	for key, files := range need {
		slices.Sort(files)
		if got := st.Depends(key); !slices.Equal(got, files) {
			w.Errorf("files %v need the object at %q, want %v", got, key, files)
		}
	}
	for key := range st.Keys {
		if got := st.Depends(key); len(got) != len(need[key]) {
			w.Errorf("files %v need the object at %q, want %v", got, key, need[key])
		}
	}
}

// write makes a file of content.
func (w *world) write(dir, base, content string) {
	w.Helper()
	h, err := w.space.Create(w.Context(), dir, base, CreateOptions{Mode: 0o644})
	if err != nil {
		h, err = w.space.Open(w.Context(), dir, base, OpenOptions{Write: true, Truncate: true})
	}
	if err != nil {
		w.Fatalf("create %s/%s: %v", dir, base, err)
	}
	defer h.Release()
	if _, err := h.WriteAt(w.Context(), []byte(content), 0); err != nil {
		w.Fatal(err)
	}
	if err := h.Flush(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// read returns what the mount has at a name.
func (w *world) read(dir, base string) (string, error) {
	e, _, err := w.space.Lookup(w.Context(), dir, base)
	if err != nil {
		return "", err
	}
	return w.readEntry(e)
}

// readEntry reads as fs does: where an object is gone, the content of a file may be
// another object by now.
func (w *world) readEntry(e Entry) (string, error) {
	obj := e.Object
	for {
		if f := e.File; f != nil {
			a, err := f.Stat()
			if err != nil {
				return "", err
			}
			b := make([]byte, a.Size)
			n, staged, err := f.ReadAt(w.Context(), b, 0)
			if staged {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return string(b[:n]), err
			}
			obj, _ = f.Content()
		}
		if b, ok := w.cache.get(obj); ok {
			return string(b), nil
		}
		b := make([]byte, obj.Size)
		if len(b) == 0 {
			return "", nil
		}
		_, err := w.bucket.ReadRange(w.Context(), oss.RangeRequest{Object: obj, Buffer: b})
		if err == nil {
			return string(b), nil
		}
		if e.File == nil {
			return "", err
		}
		if now, staged := e.File.Content(); !staged && now == obj {
			return "", err
		}
	}
}

// inBucket returns the objects under the prefix.
func (w *world) inBucket() map[string]string {
	w.store.Lock()
	defer w.store.Unlock()
	all := make(map[string]string)
	for key, o := range w.store.objects {
		all[key] = string(o.content)
	}
	return all
}

// bubble runs f with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
