package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// A file that could not be recorded is not there, and nobody has it open.
func TestFailedCreationLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "content")
		w.drain()
		w.unwritable(syscall.ENOSPC)
		if _, err := w.space.Create(t.Context(), "", "x", CreateOptions{}); err == nil {
			t.Fatal("a file was made without a record")
		}
		w.unwritable(nil)
		if _, err := w.read("", "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("reading x: %v, want %v", err, fs.ErrNotExist)
		}
		w.write("", "x", "ours")
		w.drain()
		time.Sleep(10 * time.Minute)
		if got := w.inBucket()["p/x"]; got != "ours" {
			t.Errorf("the bucket holds %q", got)
		}
		staged, err := os.ReadDir(w.cfg.Dir + "/" + stagedDir)
		if err != nil || len(staged) != 0 {
			t.Errorf("%d staged files are left, %v", len(staged), err)
		}
		w.checkJournal()
		w.stop()
	})
}

// A file is renamed between its publication and the moment in which its bytes go to
// the cache: the object that it was published as must not be deleted before the copy.
func TestFileRenamedBeforeItsAdoptionNeedsItsObject(t *testing.T) {
	st := newState()
	key := func(base string) place { return place{Name: base, Key: base, Base: absent(base)} }
	st.apply(&createdRecord{File: 1, At: key("a")})
	st.apply(&closedRecord{File: 1, Gen: 1})
	put := st.Keys["a"].Pending
	st.apply(&begunRecord{Op: put, Gen: 1})
	object := absent("a")
	object.ETag = "1"
	st.apply(&doneRecord{Op: put, Object: object})
	st.apply(&renamedRecord{File: 1, To: key("b")})
	st.apply(&adoptedRecord{File: 1})
	if st.Files[1].Staged || st.Files[1].Object != object {
		t.Fatalf("the file is %+v: that is not the case to be tested", st.Files[1])
	}
	if got := st.depends("a"); len(got) != 1 || got[0] != 1 {
		t.Errorf("files %v need the object, want file 1", got)
	}
}

// renamedTree returns a state in which a directory of so many objects was renamed.
func renamedTree(files int) *state {
	st := newState()
	for i := range files {
		old, fresh := fmt.Sprint("old/", i), fmt.Sprint("new/", i)
		at := place{Dir: "old", Name: fmt.Sprint(i), Key: old, Base: oss.Object{Key: old, ETag: "1"}}
		st.apply(&openedRecord{File: fileID(i + 1), At: at})
		st.apply(&renamedRecord{File: fileID(i + 1), To: place{Dir: "new", Name: fmt.Sprint(i), Key: fresh, Base: absent(fresh)}})
	}
	return st
}

// TestObjectsThatNobodyNeedsAreForgotten: who was renamed needs the old object until it is
// published, and nothing remembers that for ever.
func TestObjectsThatNobodyNeedsAreForgotten(t *testing.T) {
	const files = 100
	st := renamedTree(files)
	if len(st.displaced) != files {
		t.Fatalf("%d objects are needed, want %d", len(st.displaced), files)
	}
	for i := range files {
		key := fmt.Sprint("new/", i)
		put := st.Keys[key].Pending
		st.apply(&begunRecord{Op: put})
		st.apply(&doneRecord{Op: put, Object: oss.Object{Key: key, ETag: "1"}})
	}
	st.displacing = maxDisplacing
	st.apply(&openedRecord{File: files + 1, At: place{Name: "a", Key: "a", Base: oss.Object{Key: "a", ETag: "1"}}})
	st.apply(&renamedRecord{File: files + 1, To: place{Name: "b", Key: "b", Base: absent("b")}})
	if len(st.displaced) != 1 {
		t.Errorf("%d objects are remembered, want one", len(st.displaced))
	}
}

// BenchmarkDepends is the question whether anybody needs an object, which is asked twice of each
// that is replaced or removed.
func BenchmarkDepends(b *testing.B) {
	for _, files := range []int{100, 10000, 100000} {
		b.Run(fmt.Sprintf("renamed=%d", files), func(b *testing.B) {
			st := renamedTree(files)
			for b.Loop() {
				if len(st.depends("old/7")) != 1 || len(st.depends("new/7")) > 0 {
					b.Fatal("one needs the old object, and none the new one")
				}
			}
		})
	}
}
