package fs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// lateFile is a file as it is when a program looks it up.
type lateFile struct {
	name string
	size int
	// put is what is in the bucket before it is mounted, at makes the file what it is.
	put func(e *ossemutest.Emulator, name string, content []byte)
	at  func(t *testing.T, w *written, name string, content []byte)
	// drained says that its content is kept also when all is published before it is opened,
	// writes that it can be opened for writing, too.
	drained, writes bool
}

func nothingPut(*ossemutest.Emulator, string, []byte) {}

func objectPut(e *ossemutest.Emulator, name string, content []byte) { e.Put(name, content) }

func nothingDone(*testing.T, *written, string, []byte) {}

func fileWritten(t *testing.T, w *written, name string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(w.path(name), content, 0o644))
}

func filePublished(t *testing.T, w *written, name string, content []byte) {
	t.Helper()
	fileWritten(t, w, name, content)
	w.drain(t)
}

var lateFiles = []lateFile{
	{name: "written", size: 100_000, put: nothingPut, at: fileWritten, drained: true, writes: true},
	{name: "written and large", size: 3 << 20, put: nothingPut, at: fileWritten, drained: true, writes: true},
	{name: "published", size: 100_000, put: nothingPut, at: filePublished, drained: true},
	{name: "published and large", size: 3 << 20, put: nothingPut, at: filePublished, drained: true},
	{
		name: "left to the bucket", size: 100_000, put: nothingPut, drained: true,
		at: func(t *testing.T, w *written, name string, content []byte) {
			filePublished(t, w, name, content)
			eventually(t, "the space forgets it", func() bool {
				e, _, err := w.space.Lookup(t.Context(), "", name)
				return err == nil && e.File == nil
			})
		},
	},
	{name: "in the bucket", size: 100_000, put: objectPut, at: nothingDone},
	{name: "in the bucket and large", size: 3 << 20, put: objectPut, at: nothingDone},
	{
		name: "in the cache", size: 100_000, put: objectPut, drained: true,
		at: func(t *testing.T, w *written, name string, content []byte) {
			same(t, readAll(t, w.path(name)), content)
		},
	},
	{
		name: "with another mode", size: 100_000, put: objectPut, writes: true,
		at: func(t *testing.T, w *written, name string, _ []byte) { must(t, os.Chmod(w.path(name), 0o600)) },
	},
	{
		name: "renamed", size: 100_000, writes: true,
		put: func(e *ossemutest.Emulator, name string, content []byte) { e.Put(name+"-before", content) },
		at: func(t *testing.T, w *written, name string, _ []byte) {
			must(t, os.Rename(w.path(name+"-before"), w.path(name)))
		},
	},
	{name: "edited", size: 100_000, put: otherPut, at: fileEdited, drained: true, writes: true},
	// Of this one only what was written is here, and the object has the rest.
	{name: "edited in part", size: 9 << 20, put: otherPut, at: fileEdited, writes: true},
}

func otherPut(e *ossemutest.Emulator, name string, content []byte) {
	e.Put(name, append([]byte("~~~~"), content[4:]...))
}

func fileEdited(t *testing.T, w *written, name string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(w.path(name), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(content[:4], 0)
	must(t, err)
	must(t, f.Close())
}

// lookedUp looks a name up and does not open it. open opens what was found then.
func (w *written) lookedUp(t *testing.T, name string) (open func(flags int) (*os.File, error)) {
	t.Helper()
	fd, err := unix.Open(w.path(name), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func(flags int) (*os.File, error) { return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0) }
}

// loses takes the name away, by removing it or by renaming another file over it.
func (w *written) loses(t *testing.T, name string, replaced bool) {
	t.Helper()
	if !replaced {
		must(t, os.Remove(w.path(name)))
		return
	}
	must(t, os.WriteFile(w.path(name+".new"), []byte("new"), 0o644))
	must(t, os.Rename(w.path(name+".new"), w.path(name)))
}

// TestWhatLostItsNameOpensToWhatItHad opens files between whose lookup and open the name went.
func TestWhatLostItsNameOpensToWhatItHad(t *testing.T) {
	e := startStore(t)
	type loss struct {
		lateFile
		path              string
		content           []byte
		replaced, drained bool
	}
	var losses []loss
	for i, c := range lateFiles {
		content := random(uint64(i)+1, c.size)
		for _, how := range []struct{ replaced, drained bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			if how.drained && !c.drained {
				continue
			}
			path := fmt.Sprintf("f%d-%v-%v", i, how.replaced, how.drained)
			c.put(e, path, content)
			losses = append(losses, loss{c, path, content, how.replaced, how.drained})
		}
	}
	w := mountWritten(t, e, writtenOptions{config: Config{Attrs: true, lateAge: patience}})
	for _, c := range losses {
		t.Run(fmt.Sprintf("%s, replaced %v, drained %v", c.name, c.replaced, c.drained), func(t *testing.T) {
			c.at(t, w, c.path, c.content)
			open := w.lookedUp(t, c.path)
			w.loses(t, c.path, c.replaced)
			if c.drained {
				w.drain(t)
			}
			w.readsLate(t, open, c.content)
			if c.writes && !c.drained {
				w.writesLate(t, open, c.content)
			}
			w.drain(t)
			if c.replaced {
				w.holds(t, c.path, []byte("new"))
			} else if got := w.Keys(c.path); len(got) != 0 {
				t.Errorf("the bucket has %v", got)
			}
		})
	}
}

// readsLate opens and reads twice: the second open finds what the first one left.
func (w *written) readsLate(t *testing.T, open func(int) (*os.File, error), content []byte) {
	t.Helper()
	for range 2 {
		f, err := open(os.O_RDONLY)
		must(t, err)
		got, err := io.ReadAll(f)
		must(t, err)
		same(t, got, content)
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		if st.Size != int64(len(content)) || st.Nlink != 0 {
			t.Errorf("it has %d bytes and %d names", st.Size, st.Nlink)
		}
		must(t, f.Close())
	}
}

// writesLate opens to write in place, and to write anew.
func (w *written) writesLate(t *testing.T, open func(int) (*os.File, error), content []byte) {
	t.Helper()
	f, err := open(os.O_RDWR)
	must(t, err)
	_, err = f.WriteAt([]byte("edited"), 10)
	must(t, err)
	must(t, f.Close())
	w.readsLate(t, open, append(append(bytes.Clone(content[:10]), "edited"...), content[16:]...))
	f, err = open(os.O_RDWR | os.O_TRUNC)
	must(t, err)
	_, err = f.WriteString("anew")
	must(t, err)
	must(t, f.Close())
	w.readsLate(t, open, []byte("anew"))
}

// TestProcessesThatShareNamesReadWholeFiles: some replace files by a rename, others open and read
// them. Each read is all of one version, as on any local file system.
func TestProcessesThatShareNamesReadWholeFiles(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	const names, rounds = 4, 400
	version := func(seed uint64) []byte {
		b := random(seed, 8+int(seed*7919%20_000))
		binary.LittleEndian.PutUint64(b, seed)
		return b
	}
	path := func(i int) string { return w.path(fmt.Sprintf("shared-%d", i)) }
	for i := range names {
		must(t, os.WriteFile(path(i), version(uint64(i)), 0o644))
	}
	var writers, readers sync.WaitGroup
	var next atomic.Uint64
	next.Store(names)
	done := make(chan struct{})
	for g := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			temporary := w.path(fmt.Sprintf("temporary-%d", g))
			for range rounds * stressFactor() {
				err := os.WriteFile(temporary, version(next.Add(1)), 0o644)
				if err == nil {
					err = os.Rename(temporary, path(rng.IntN(names)))
				}
				if err != nil {
					t.Errorf("writer: %v", err)
					return
				}
			}
		})
	}
	var reads atomic.Int64
	for g := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for {
				select {
				case <-done:
					return
				default:
				}
				reads.Add(1)
				b, err := os.ReadFile(path(rng.IntN(names)))
				switch {
				case err != nil:
					t.Errorf("read %d: %v", reads.Load(), err)
				case len(b) < 8 || !bytes.Equal(b, version(binary.LittleEndian.Uint64(b))):
					t.Errorf("read %d: %d bytes of no version: %.20q", reads.Load(), len(b), b)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	t.Logf("%d reads", reads.Load())
	eventually(t, "nothing is kept of what lost its name", func() bool { return w.mount.fs.keeps.late.Len() == 0 })
}

// TestForgettingLetsGoOfWhatLostItsName: what is kept goes when the kernel forgets the file, and
// its staged file with it; of many that the kernel does not forget only so much is kept.
func TestForgettingLetsGoOfWhatLostItsName(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{lateAge: patience}})
	fileWritten(t, w, "file", random(1, 200_000))
	fd, err := unix.Open(w.path("file"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	w.loses(t, "file", false)
	if n := w.mount.fs.keeps.late.Len(); n != 1 {
		t.Errorf("%d files are kept", n)
	}
	must(t, unix.Close(fd))
	eventually(t, "it is let go", func() bool { return w.mount.fs.keeps.late.Len() == 0 })
	w.drain(t)
	eventually(t, "its staged file is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "staging", "staged", "*"))
		return err == nil && len(left) == 0
	})
}

// TestWhatLostItsNameStaysInTheBucketUntilItIsForgotten: where the cache does not have it. Nobody
// waits for that: a flush does not, and so what is opened after one was looked up for nothing.
func TestWhatLostItsNameStaysInTheBucketUntilItIsForgotten(t *testing.T) {
	e := startStore(t)
	content := random(1, 100_000)
	for _, name := range []string{"removed", "replaced", "flushed"} {
		e.Put(name, content)
	}
	w := mountWritten(t, e, writtenOptions{
		config: Config{lateAge: time.Hour},
		cache:  cache.Config{Never: func(string) bool { return true }},
	})
	for _, name := range []string{"removed", "replaced"} {
		t.Run(name, func(t *testing.T) {
			open := w.lookedUp(t, name)
			w.loses(t, name, name == "replaced")
			eventually(t, "it is held back", func() bool {
				due := w.space.Pending(name, 10)
				return len(due) == 1 && due[0].State == "open"
			})
			w.holds(t, name, content)
			w.readsLate(t, open, content)
		})
	}
	open := w.lookedUp(t, "flushed")
	w.loses(t, "flushed", true)
	w.drain(t)
	for _, name := range []string{"replaced", "flushed"} {
		w.holds(t, name, []byte("new"))
	}
	if keys := w.Keys(""); len(keys) != 2 {
		t.Errorf("the bucket has %v", keys)
	}
	if b, err := readOpened(open(os.O_RDONLY)); !errors.Is(err, unix.ESTALE) {
		t.Errorf("of what was flushed %d bytes are read, %v", len(b), err)
	}
}

// readOpened reads what was opened, if it was.
func readOpened(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

// TestWhatLostItsNameIsNeverReadAsEmpty: when it was let go, and the kernel knows it still, an open
// says so, or finds it whole where an upload of it has not ended yet.
func TestWhatLostItsNameIsNeverReadAsEmpty(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	content := random(1, 200_000)
	fileWritten(t, w, "file", content)
	open := w.lookedUp(t, "file")
	w.loses(t, "file", false)
	w.mount.fs.keeps.late.Clear() // as after lateopens.Age
	got, err := readOpened(open(os.O_RDONLY))
	if !errors.Is(err, unix.ESTALE) {
		must(t, err)
		same(t, got, content)
	}
	w.drain(t)
	for _, flags := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC} {
		eventually(t, fmt.Sprintf("open with %#x says that it is gone", flags), func() bool {
			_, err := readOpened(open(flags))
			return errors.Is(err, unix.ESTALE)
		})
	}
}
