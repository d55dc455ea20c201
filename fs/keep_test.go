package fs

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// losesItsName opens a file, removes it or replaces it, and returns it open.
func (w *written) losesItsName(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(w.path(name))
	must(t, err)
	if name == "removed" {
		must(t, os.Remove(w.path(name)))
	} else {
		must(t, os.WriteFile(w.path("new"), []byte("new"), 0o644))
		must(t, os.Rename(w.path("new"), w.path(name)))
	}
	return f
}

// A large object whose name goes while it is open goes when the cache has it.
func TestLargeFilesStayReadableWhenTheyLoseTheirName(t *testing.T) {
	e := startStore(t)
	const size = 3 << 20
	for _, name := range []string{"removed", "replaced"} {
		e.Put(name, random(9, size))
	}
	w := mountWritten(t, e, writtenOptions{})
	w.mount.fs.keeps.keepAtOnce.Store(100_000)
	for _, name := range []string{"removed", "replaced"} {
		f := w.losesItsName(t, name)
		w.drain(t)
		got := make([]byte, size)
		_, err := f.ReadAt(got, 0)
		must(t, err)
		same(t, got, random(9, size))
		must(t, f.Close())
	}
	w.holds(t, "replaced", []byte("new"))
	if keys := w.Keys(""); len(keys) != 1 {
		t.Errorf("the bucket has %v", keys)
	}
}

// One that the cache does not keep goes when it is closed.
func TestLargeFilesThatCannotBeKeptGoWhenTheyAreClosed(t *testing.T) {
	e := startStore(t)
	const size = 3 << 20
	for _, name := range []string{"removed", "replaced"} {
		e.Put(name, random(9, size))
	}
	w := mountWritten(t, e, writtenOptions{cache: cache.Config{Never: func(string) bool { return true }}})
	w.mount.fs.keeps.keepAtOnce.Store(100_000)
	for _, name := range []string{"removed", "replaced"} {
		f := w.losesItsName(t, name)
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if due := w.space.Pending(name, 10); len(due) == 1 && due[0].State == "open" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it is not held back: %+v", w.space.Pending("", 10))
			}
		}
		w.holds(t, name, random(9, size))
		got := make([]byte, size)
		_, err := f.ReadAt(got, 0)
		must(t, err)
		same(t, got, random(9, size))
		must(t, f.Close())
		w.drain(t)
	}
	w.holds(t, "replaced", []byte("new"))
	if keys := w.Keys(""); len(keys) != 1 {
		t.Errorf("the bucket has %v", keys)
	}
}

// An open that fails has not emptied the file.
func TestAnOpenThatFailsTruncatesNothing(t *testing.T) {
	e := startStore(t)
	e.Put("file", random(1, 100_000))
	w := mountWritten(t, e, writtenOptions{})
	f, err := os.Open(w.path("file"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	var st *fileState
	for _, n := range w.mount.fs.inodes.nodes.all() {
		if n.at().name == "file" {
			st = n.opened()
		}
	}
	// As where the kernel reads a file of the cache that the writer could not take over.
	set := func(mode ioMode, backing uint64) (before ioMode) {
		st.mu.Lock()
		defer st.mu.Unlock()
		before, st.mu.mode, st.mu.backingInode = st.mu.mode, mode, backing
		return before
	}
	before := set(passthrough, 1)
	_, err = os.OpenFile(w.path("file"), os.O_WRONLY|os.O_TRUNC, 0)
	set(before, 0)
	if !errors.Is(err, unix.ETXTBSY) {
		t.Fatalf("the open: %v", err)
	}
	got, err := os.ReadFile(w.path("file"))
	must(t, err)
	same(t, got, random(1, 100_000))
}
