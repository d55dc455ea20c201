package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forgetfulDisk has of the journal what was flushed; as with the kernel, what a flush could
// not write is taken for written by the next one.
type forgetfulDisk struct {
	// fail is what flushes fail with.
	fail error
	// has is what is on the disk, dirty what was written since the last flush, by offset.
	has   []byte
	dirty map[int64][]byte
	// written counts the bytes written to the journal.
	written int
}

func (d *forgetfulDisk) WriteAt(f *os.File, b []byte, off int64) error {
	if d.dirty == nil {
		d.dirty = make(map[int64][]byte)
	}
	d.dirty[off] = bytes.Clone(b)
	d.written += len(b)
	_, err := f.WriteAt(b, off)
	return err
}

func (d *forgetfulDisk) Sync(*os.File) error {
	dirty := d.dirty
	d.dirty = nil
	if d.fail != nil {
		return d.fail
	}
	for off, b := range dirty {
		if n := off + int64(len(b)); n > int64(len(d.has)) {
			d.has = append(d.has, make([]byte, n-int64(len(d.has)))...)
		}
		copy(d.has[off:], b)
	}
	return nil
}

func (d *forgetfulDisk) SyncDir(string) error { return nil }

// run opens the journal of dir as a daemon does that starts in a run of the machine, and
// returns what it said already.
func run(t *testing.T, d Disk, dir, boot string) (*Log, []string) {
	t.Helper()
	whole := read(t, dir)
	said, rest := bodies(t, whole)
	file, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(d, dir, boot, file, int64(len(whole))-rest)
	if err != nil {
		t.Fatal(err)
	}
	return l, said
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// newJournal makes an empty journal, all of which the disk has.
func newJournal(t *testing.T) (dir string, d *forgetfulDisk) {
	t.Helper()
	dir = t.TempDir()
	if err := Create(&plainDisk{}, dir, Header()); err != nil {
		t.Fatal(err)
	}
	return dir, &forgetfulDisk{has: Header()}
}

// A daemon cannot bring records to the disk, or is killed before it has; the next one of
// the same run of the machine reads them, and its flush vouches for them.
func TestWhatTheLastRunCouldNotSyncIsWrittenAgain(t *testing.T) {
	failed := errors.New("the disk fails")
	for name, end := range map[string]func(d *forgetfulDisk, l *Log) error{
		"its flush failed": func(d *forgetfulDisk, l *Log) error {
			d.fail = failed
			return l.Sync(say(l, "two"))
		},
		"it was killed during a flush that failed": func(d *forgetfulDisk, l *Log) error {
			err := l.Write(say(l, "two"))
			d.dirty = nil
			return errors.Join(err, failed)
		},
		"its flush failed after the journal was replaced": func(d *forgetfulDisk, l *Log) error {
			if err := l.Replace(new(plainLock), func() ([]byte, error) { return framed(Header(), "one"), nil }); err != nil {
				return err
			}
			d.has = framed(Header(), "one")
			d.fail = failed
			return l.Sync(say(l, "two"))
		},
		"the mark is damaged": func(d *forgetfulDisk, l *Log) error {
			d.fail = failed
			err := l.Sync(say(l, "two"))
			b, failed := os.ReadFile(filepath.Join(l.dir, syncedName))
			if failed == nil {
				b[len(b)/2] ^= 1
				failed = os.WriteFile(filepath.Join(l.dir, syncedName), b, 0o600)
			}
			return errors.Join(err, failed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, d := newJournal(t)
			first, _ := run(t, d, dir, "boot")
			if err := first.Sync(say(first, "one")); err != nil {
				t.Fatal(err)
			}
			if err := end(d, first); !errors.Is(err, failed) {
				t.Fatal(err)
			}
			closeLog(t, first)
			// The next one cannot either, the one after it can.
			second, _ := run(t, d, dir, "boot")
			d.fail = failed
			if err := second.Sync(second.End()); !errors.Is(err, failed) {
				t.Errorf("sync: %v, want %v", err, failed)
			}
			d.fail = nil
			closeLog(t, second)
			third, said := run(t, d, dir, "boot")
			if want := []string{"one", "two"}; !slices.Equal(said, want) {
				t.Fatalf("the journal says %q, want %q", said, want)
			}
			if err := third.Sync(say(third, "three")); err != nil {
				t.Fatal(err)
			}
			closeLog(t, third)
			if got, rest := bodies(t, d.has); !slices.Equal(got, []string{"one", "two", "three"}) || rest != 0 {
				t.Errorf("the disk has %q, and %d bytes more", got, rest)
			}
		})
	}
}

// plainLock is held by nobody else.
type plainLock struct{}

func (*plainLock) Lock()   {}
func (*plainLock) Unlock() {}

// Nothing is written again of what was brought to the disk, but for what shares a page
// with what follows; nor after the machine was started again, for then all of it comes from there.
func TestWhatIsOnTheDiskIsNotWrittenAgain(t *testing.T) {
	dir, d := newJournal(t)
	l, _ := run(t, d, dir, "boot")
	large := strings.Repeat("x", 5*pageSize)
	if err := l.Sync(say(l, large)); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	d.written = 0
	l, _ = run(t, d, dir, "boot")
	if d.written > 0 {
		t.Errorf("%d bytes were written again after a run that had synced all", d.written)
	}
	if err := l.Write(say(l, "one")); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	d.written = 0
	l, _ = run(t, d, dir, "boot")
	if d.written == 0 || d.written > pageSize {
		t.Errorf("%d bytes were written again after a run that had synced all but a few, want some of %d", d.written, pageSize)
	}
	closeLog(t, l)
	d.written = 0
	l, _ = run(t, d, dir, "the next boot")
	if d.written > 0 {
		t.Errorf("%d bytes were written again after the machine was started", d.written)
	}
	closeLog(t, l)
	// What is known of one journal says nothing of another.
	if err := Create(&plainDisk{}, dir, framed(Header(), large)); err != nil {
		t.Fatal(err)
	}
	l, _ = run(t, d, dir, "the next boot")
	if d.written < len(large) {
		t.Errorf("%d bytes of another journal were written again, want all", d.written)
	}
	closeLog(t, l)
}
