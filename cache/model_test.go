package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// cacheModel runs random operations on a cache. The model is the content of the
// objects, which is known: whatever happened before, a read returns it, or an
// error that a fault explains.
type cacheModel struct {
	t       *testing.T
	dir     string
	store   *fakeStore
	objects []oss.Object
	cache   *Cache
	disk    *faultFS
	handles []*Handle
	views   []modelView
	failing bool // the store answers with errors
}

// modelView is a view that is still held, with what it must show.
type modelView struct {
	view *View
	want []byte
}

func (m *cacheModel) open() {
	drive := m.disk
	c, err := open(Config{Dir: m.dir, Size: 24 << 20, Memory: minMemory, MinFreeBytes: 1, MinFreeInodes: 1}, m.store, m.store, nil, nil,
		func(dir string) (_ disk.FileSystem, err error) {
			drive, err = newFaultFS(dir)
			return drive, err
		})
	if err != nil {
		m.t.Fatal(err)
	}
	m.cache, m.disk = c, drive
}

func (m *cacheModel) letGo() {
	for _, v := range m.views {
		m.checkView(v)
		v.view.Release()
	}
	for _, h := range m.handles {
		_ = h.Close()
	}
	m.views, m.handles = nil, nil
}

func (m *cacheModel) checkView(v modelView) {
	if !bytes.Equal(bytes.Join(v.view.Slices(), nil), v.want) {
		m.t.Fatal("a view changed while it was held")
	}
}

// handle returns an open handle, the last or another.
func (m *cacheModel) handle(t *rapid.T) *Handle {
	if len(m.handles) == 0 || rapid.IntRange(0, 3).Draw(t, "new") == 0 {
		h, err := m.cache.Open(rapid.SampledFrom(m.objects).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		m.handles = append(m.handles, h)
		return h
	}
	return rapid.SampledFrom(m.handles).Draw(t, "handle")
}

// place draws a part of an object: anywhere, or near a border.
func (m *cacheModel) place(t *rapid.T, size int64) (off int64, n int) {
	off = rapid.Int64Range(0, size+10).Draw(t, "off")
	if rapid.Bool().Draw(t, "at a border") {
		off = max(0, off-off%content.BlockSize+rapid.Int64Range(-2, 2).Draw(t, "beside"))
	}
	return off, rapid.SampledFrom([]int{1, 100, 4096, 70_000, 200_000, 1 << 20}).Draw(t, "n")
}

func (m *cacheModel) want(obj oss.Object, off int64, n int) []byte {
	content := m.store.content(obj)
	content = content[min(off, int64(len(content))):]
	return content[:min(n, len(content))]
}

func (m *cacheModel) Read(t *rapid.T) {
	h := m.handle(t)
	off, n := m.place(t, h.Object().Size)
	p := make([]byte, n)
	got, err := h.ReadAt(context.Background(), p, off)
	if errors.Is(err, oss.ErrUnavailable) && m.failing {
		return
	}
	want := m.want(h.Object(), off, n)
	if err != nil && (!errors.Is(err, io.EOF) || len(want) == n) || !bytes.Equal(p[:got], want) {
		t.Fatalf("read %d at %d of %d: %d, %v", n, off, h.Object().Size, got, err)
	}
}

func (m *cacheModel) ReadSequentially(t *rapid.T) {
	h := m.handle(t)
	off, _ := m.place(t, h.Object().Size)
	n := rapid.SampledFrom([]int{50_000, 128 << 10, 1 << 20}).Draw(t, "step")
	for range rapid.IntRange(1, 10).Draw(t, "steps") {
		p := make([]byte, n)
		got, err := h.ReadAt(context.Background(), p, off)
		if errors.Is(err, oss.ErrUnavailable) && m.failing {
			return
		}
		if (err != nil && !errors.Is(err, io.EOF)) || !bytes.Equal(p[:got], m.want(h.Object(), off, n)) {
			t.Fatalf("read %d at %d of %d: %d, %v", n, off, h.Object().Size, got, err)
		}
		off += int64(got)
	}
}

func (m *cacheModel) View(t *rapid.T) {
	h := m.handle(t)
	off, n := m.place(t, h.Object().Size)
	v, err := h.View(context.Background(), off, n)
	if errors.Is(err, oss.ErrUnavailable) && m.failing {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	view := modelView{v, m.want(h.Object(), off, n)}
	m.checkView(view)
	if len(m.views) < 8 {
		m.views = append(m.views, view)
	} else {
		v.Release()
	}
}

func (m *cacheModel) ReleaseView(*rapid.T) {
	if len(m.views) > 0 {
		m.checkView(m.views[0])
		m.views[0].view.Release()
		m.views = m.views[1:]
	}
}

func (m *cacheModel) ReadWholeFile(t *rapid.T) {
	h := m.handle(t)
	if f, ok := h.WholeFile(); ok {
		content, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil || !bytes.Equal(content, m.store.content(h.Object())) {
			t.Fatalf("the whole file is not the object: %v", err)
		}
	}
}

func (m *cacheModel) CloseHandle(t *rapid.T) {
	if len(m.handles) > 0 {
		i := rapid.IntRange(0, len(m.handles)-1).Draw(t, "i")
		if err := m.handles[i].Close(); err != nil {
			t.Fatal(err)
		}
		m.handles = append(m.handles[:i], m.handles[i+1:]...)
	}
}

func (m *cacheModel) Fetch(t *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rapid.IntRange(0, 4).Draw(t, "cancelled") == 0 {
		cancel()
	}
	obj := rapid.SampledFrom(m.objects[:len(m.objects)-1]).Draw(t, "object")
	for _, h := range m.handles {
		if h.Object().Size > 4<<20 {
			return // what is pinned might leave no room, for ever
		}
	}
	err := m.cache.Fetch(ctx, obj)
	if err == nil && !m.cache.Residency(obj).Whole {
		t.Fatal("Fetch returned and the object is not there")
	}
	m.cache.Release(obj)
}

func (m *cacheModel) Release(t *rapid.T) {
	m.cache.Release(rapid.SampledFrom(m.objects).Draw(t, "object"))
}

func (m *cacheModel) MakeRoom(t *rapid.T) {
	m.cache.MakeRoom(rapid.Int64Range(1, 30<<20).Draw(t, "bytes"))
}

func (m *cacheModel) Commit(*rapid.T) { _ = m.cache.ssd.indexer.commit() }

func (m *cacheModel) Restart(t *rapid.T) {
	m.letGo()
	m.heal()
	if err := m.cache.Close(); err != nil {
		t.Fatal(err)
	}
	if n := m.cache.memory.budget.inUse(); n != 0 {
		t.Fatalf("%d bytes were not given back", n)
	}
	m.open()
}

func (m *cacheModel) Crash(*rapid.T) {
	m.letGo()
	m.cache.crash(m.t)
	m.open()
}

// Damage flips a byte of some file while the cache does not run.
func (m *cacheModel) Damage(t *rapid.T) {
	m.letGo()
	m.heal()
	if err := m.cache.Close(); err != nil {
		t.Fatal(err)
	}
	obj := rapid.SampledFrom(m.objects).Draw(t, "object")
	if f, err := os.OpenFile(objectFile(m.dir, obj), os.O_RDWR, 0); err == nil {
		off := rapid.Int64Range(0, obj.Size-1).Draw(t, "off")
		var b [1]byte
		_, _ = f.ReadAt(b[:], off)
		b[0] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		_, _ = f.WriteAt(b[:], off)
		_ = f.Close()
	}
	m.open()
}

// Fault makes the disk or the store fail for a while.
func (m *cacheModel) Fault(t *rapid.T) {
	fail := func(string) error { return unix.EIO }
	switch rapid.IntRange(0, 5).Draw(t, "fault") {
	case 0:
		m.disk.set(func() { m.disk.mu.writeErr, m.disk.mu.short = fail, 3000 })
	case 1:
		m.disk.set(func() { m.disk.mu.syncErr = fail })
	case 2:
		m.disk.set(func() { m.disk.mu.readErr = fail })
	case 3:
		m.disk.set(func() { m.disk.mu.openErr = fail })
	case 4:
		m.store.mu.Lock()
		m.store.mu.fail = func(oss.RangeRequest) error { return oss.ErrUnavailable }
		m.store.mu.Unlock()
		m.failing = true
	default:
		m.heal()
	}
}

func (m *cacheModel) heal() {
	m.disk.set(func() {
		m.disk.mu.writeErr, m.disk.mu.syncErr, m.disk.mu.readErr, m.disk.mu.openErr = nil, nil, nil, nil
	})
	m.store.mu.Lock()
	m.store.mu.fail = nil
	m.store.mu.Unlock()
	m.failing = false
	// So that the rest of the run has an SSD tier.
	m.cache.ssd.health.Probed(nil)
	m.cache.ssd.health.Probed(nil)
}

// Check holds after every operation.
func (m *cacheModel) Check(t *rapid.T) {
	b, p := m.cache.memory.budget, m.cache.memory.pool
	if used := b.inUse(); used < 0 || used > b.limit {
		t.Fatalf("%d bytes are in use of %d", used, b.limit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.live+p.mu.warm > p.limit || p.mu.live < 0 || p.mu.warm < 0 {
		t.Fatalf("%d and %d bytes in buffers of %d", p.mu.live, p.mu.warm, p.limit)
	}
}

func TestRandomOperationsReturnTheContent(t *testing.T) {
	store := newFakeStore()
	var objects []oss.Object
	for i, size := range []int{1, 4096, 100_000, 300_000, content.SmallObject, content.SmallObject + 1, 3 << 20, 9<<20 + 1, 20 << 20} {
		objects = append(objects, store.put(fmt.Sprint("object", i), size))
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "cache-model-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &cacheModel{t: t, dir: dir, store: store, objects: objects}
		m.open()
		actions := rapid.StateMachineActions(m)
		delete(actions, "Check")
		actions[""] = m.Check
		rt.Repeat(actions)
		m.letGo()
		m.heal()
		if err := m.cache.Close(); err != nil {
			rt.Fatal(err)
		}
		if n := m.cache.memory.budget.inUse(); n != 0 {
			rt.Fatalf("%d bytes were not given back", n)
		}
		if n := m.cache.objects.count(); n != 0 {
			rt.Fatalf("%d objects are still referred to", n)
		}
	})
}
