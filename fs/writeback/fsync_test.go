package writeback

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// onceFailing is a disk that does not take a file once, as a kernel does that forgets the pages
// then. Where during is set it is called instead, when the disk has the file.
type onceFailing struct {
	disk
	path   string
	told   bool
	during func()
}

func (d *onceFailing) Sync(f *os.File) error {
	if f.Name() != d.path || d.told {
		return d.disk.Sync(f)
	}
	d.told = true
	if d.during == nil {
		return syscall.EIO
	}
	err := d.disk.Sync(f)
	d.during()
	return err
}

// unwritable makes every write to the journal fail, or none.
func (w *world) unwritable(err error) {
	w.disk.Lock()
	defer w.disk.Unlock()
	w.disk.unwritable = err
}

// The disk did not take what was written, and the journal cannot be written at that moment
// either: no later fsync says that all is well, for the kernel tells of lost pages once.
func TestFailedFsyncIsNotForgottenWhereTheJournalFailsAsWell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		h := w.create("a", "durable")
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.writeAt(h, "changed", 0)
		failing := &onceFailing{disk: w.space.disk, path: w.space.path(h.file.id)}
		w.space.disk = failing
		w.unwritable(syscall.EBADF)
		if err := h.Sync(t.Context()); err == nil {
			t.Error("fsync says that all is well")
		}
		w.unwritable(nil)
		if err := h.Sync(t.Context()); failing.told && !errors.Is(err, syscall.EIO) {
			t.Errorf("fsync of what the disk has lost: %v, want EIO", err)
		}
		w.stop()
	})
}

// A chunk that is written while an fsync is written down is not taken for one that the disk
// has: the record of the chunks may be long.
func TestFsyncDoesNotVouchForAChunkThatComesWhenItIsWrittenDown(t *testing.T) {
	w := newPartialWorld(t, func(c *Config) { c.limits.inline = 3 })
	w.store.put("p/a", string(make([]byte, 320)))
	h := w.openToEdit("", "a")
	w.writeAt(h, "first", 0)
	if err := h.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, s := h.file, w.space
	// Every second chunk of many is local.
	const chunks = 1 << 18
	p := state.Partial{Base: f.state().Partial.Base, Limit: 16 * chunks, Chunk: 16}
	var runs []byte
	for range chunks / 2 {
		runs = binary.AppendUvarint(binary.AppendUvarint(runs, 1), 1)
	}
	p.Local = string(runs)
	n := p.Presence()
	began := time.Now()
	n.Mark()
	once := time.Since(began)
	// Nobody else commits or publishes it.
	w.cancel()
	<-w.ended
	f.present.Store(n)
	disk := s.disk
	for i := range 60 {
		for _, slow := range []bool{false, true} {
			w.writeAt(h, "again", 0)
			changed := make(chan struct{})
			var before presence.Mark
			s.disk = disk
			if slow {
				s.disk = &onceFailing{disk: disk, path: s.path(f.id), during: func() {
					before = n.Mark()
					go func() {
						defer close(changed)
						time.Sleep(once * time.Duration(i) / 30)
						n.Changed(int64(32*(i+1)), 1)
					}()
				}}
			} else {
				close(changed)
			}
			if err := f.commit(true); err != nil {
				t.Fatal(err)
			}
			<-changed
			st := f.state()
			if slow && (st.Partial.Limit != before.Limit || st.Partial.Local != before.Local) {
				vouched := false
				w.records(func(r state.Record) {
					if g, ok := r.(*state.Group); ok && len(g.Records) == 3 {
						p, isPartial := g.Records[0].(*state.Lacks)
						vouched = vouched || isPartial && p.Partial.Local != before.Local && p.Partial.Local == st.Partial.Local
					}
				})
				if vouched {
					t.Fatalf("round %d: one record says that the disk has a chunk that came after it was synced", i)
				}
			}
		}
	}
}
