package writeback

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"
)

// A file that could not be recorded is not there, and nobody has it open.
func TestFailedCreationLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "content")
		w.drain()
		j := w.space.journal
		swap := func(file *os.File) (before *os.File) {
			j.syncing.Lock()
			defer j.syncing.Unlock()
			j.writing.Lock()
			defer j.writing.Unlock()
			before, j.file = j.file, file
			return before
		}
		full, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		good := swap(full)
		if _, err := w.space.Create(t.Context(), "", "x", CreateOptions{}); err == nil {
			t.Fatal("a file was made without a record")
		}
		swap(good)
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
