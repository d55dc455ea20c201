package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// plainDisk is the disk as it is, but for what it is told to fail.
type plainDisk struct {
	mu struct {
		sync.Mutex
		write, sync, syncDir error
	}
	// synced, if set, is called with each file that is brought to the disk.
	synced func(f *os.File)
	// renamed, if set, is called when the names of a directory are.
	renamed func()
}

// fail makes every call fail that has an error here.
func (d *plainDisk) fail(write, sync, syncDir error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.write, d.mu.sync, d.mu.syncDir = write, sync, syncDir
}

func (d *plainDisk) WriteAt(f *os.File, b []byte, off int64) error {
	d.mu.Lock()
	err := d.mu.write
	d.mu.Unlock()
	if err != nil {
		// Some of it may be there.
		_, _ = f.WriteAt(b[:len(b)/2], off)
		return err
	}
	_, err = f.WriteAt(b, off)
	return err
}

func (d *plainDisk) Sync(f *os.File) error {
	if d.synced != nil {
		d.synced(f)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.sync
}

func (d *plainDisk) SyncDir(string) error {
	if d.renamed != nil {
		d.renamed()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.syncDir
}

// say appends a record that says text.
func say(l *Log, text string) (pos int64) {
	return l.Append(func(b []byte) []byte { return append(b, text...) })
}

func read(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newLog returns an empty journal, its directory and its disk.
func newLog(t *testing.T) (*Log, string, *plainDisk) {
	t.Helper()
	dir, d := t.TempDir(), &plainDisk{}
	if err := Create(d, dir, Header()); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(d, dir, "boot", file, headerSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, dir, d
}

// says compares what the file says with want.
func says(t *testing.T, dir, when string, want ...string) {
	t.Helper()
	if got, rest := bodies(t, read(t, dir)); !slices.Equal(got, want) || rest != 0 {
		t.Errorf("%s the journal says %q, and %d bytes more, want %q", when, got, rest, want)
	}
}

// A write that failed half-way is repeated from its beginning, before what came since.
func TestFailedWriteIsRepeated(t *testing.T) {
	l, dir, d := newLog(t)
	failed := errors.New("no room")
	d.fail(failed, nil, nil)
	if err := l.Write(say(l, "one")); !errors.Is(err, failed) {
		t.Errorf("write: %v, want %v", err, failed)
	}
	pos := say(l, "two")
	d.fail(nil, nil, nil)
	if err := l.Write(pos); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "afterwards", "one", "two")
}

// After a flush that failed nobody knows what the disk has: nothing is promised any more.
func TestNothingIsPromisedAfterAFailedFlush(t *testing.T) {
	l, _, d := newLog(t)
	failed := errors.New("the disk fails")
	d.fail(nil, failed, nil)
	if err := l.Sync(say(l, "one")); !errors.Is(err, failed) {
		t.Errorf("sync: %v, want %v", err, failed)
	}
	d.fail(nil, nil, nil)
	if err := l.Write(say(l, "two")); !errors.Is(err, failed) || !errors.Is(l.Failure(), failed) {
		t.Errorf("write after it: %v, want %v", err, failed)
	}
	if l.Synced() >= 0 {
		t.Error("what the disk did not take counts as synced")
	}
}

// A journal that could not be replaced goes on as it was; one of which the disk may have
// either takes nothing more.
func TestReplacementHappensOrDoesNot(t *testing.T) {
	var appending sync.Mutex
	failed := errors.New("the disk fails")
	shorter := func() ([]byte, error) { return framed(Header(), "all"), nil }
	l, dir, d := newLog(t)
	say(l, "one")
	if err := l.Replace(&appending, func() ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("replace: %v, want %v", err, failed)
	}
	d.fail(nil, failed, nil)
	if err := l.Replace(&appending, shorter); !errors.Is(err, failed) {
		t.Errorf("replace: %v, want %v", err, failed)
	}
	d.fail(nil, nil, nil)
	if err := l.Sync(say(l, "two")); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "after what failed", "one", "two")
	pos := say(l, "three")
	if err := l.Replace(&appending, shorter); err != nil {
		t.Fatal(err)
	}
	if l.Synced() != pos || l.Size() != int64(len(read(t, dir))) {
		t.Errorf("%d of %d is synced, and %d bytes are there", l.Synced(), pos, l.Size())
	}
	if err := l.Sync(say(l, "four")); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "after it was replaced", "all", "four")
	d.fail(nil, nil, failed)
	if err := l.Replace(&appending, shorter); !errors.Is(err, ErrReplaced) {
		t.Errorf("replace: %v, want %v", err, ErrReplaced)
	}
	d.fail(nil, nil, nil)
	if err := l.Write(say(l, "five")); !errors.Is(err, ErrReplaced) {
		t.Errorf("write to a file that has no name: %v, want %v", err, ErrReplaced)
	}
}

// The file that takes the place of the journal need not be found again by its name.
func TestReplacementDoesNotRestOnItsName(t *testing.T) {
	l, dir, d := newLog(t)
	say(l, "one")
	path := filepath.Join(dir, Name)
	d.renamed = func() {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Error(err)
		}
	}
	if err := l.Replace(new(sync.Mutex), func() ([]byte, error) { return framed(Header(), "all"), nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(say(l, "two")); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "afterwards", "all", "two")
}

// What is reserved is used by what is appended, also after a replacement.
func TestReserveIsThereUntilItIsUsed(t *testing.T) {
	l, _, _ := newLog(t)
	const need = 64 << 10
	if l.HasRoom(need) || l.Low() {
		t.Error("nothing was reserved yet")
	}
	for _, when := range []string{"first", "after a replacement"} {
		if err := l.Reserve(need); err != nil {
			t.Fatal(err)
		}
		if !l.HasRoom(need) || l.Low() {
			t.Errorf("%s there is no reserve", when)
		}
		if err := l.Replace(new(sync.Mutex), func() ([]byte, error) { return Header(), nil }); err != nil {
			t.Fatal(err)
		}
		if l.HasRoom(need) {
			t.Error("the file that took the other's place is reserved still")
		}
	}
}

// Whoever was told that a record is on the disk finds it there, in the order of appending,
// while others append, flush and replace.
func TestManyWriteOneJournal(t *testing.T) {
	l, dir, _ := newLog(t)
	const writers, each = 8, 50
	var (
		appending sync.Mutex
		all       []string
		running   sync.WaitGroup
	)
	for i := range writers {
		running.Go(func() {
			for n := range each {
				text := fmt.Sprintf("%d of %d", n, i)
				appending.Lock()
				all = append(all, text)
				pos := say(l, text)
				appending.Unlock()
				done := l.Write
				if n%3 == 0 {
					done = l.Sync
				}
				if err := done(pos); err != nil {
					t.Error(err)
				}
				if n%3 == 0 && l.Synced() < pos {
					t.Errorf("%d is synced, want %d", l.Synced(), pos)
				}
				if n%10 == 0 {
					if err := l.Replace(&appending, func() ([]byte, error) {
						b := Header()
						for _, text := range all {
							b = framed(b, text)
						}
						return b, nil
					}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	says(t, dir, "at the end", all...)
}
