package state

import (
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// A file is renamed between its publication and the moment in which its bytes go to
// the cache: the object that it was published as must not be deleted before the copy.
func TestFileRenamedBeforeItsAdoptionNeedsItsObject(t *testing.T) {
	st := NewState()
	key := func(base string) Place { return Place{Name: base, Key: base, Base: Absent(base)} }
	st.Apply(&Created{File: 1, At: key("a")})
	st.Apply(&Closed{File: 1, Gen: 1})
	put := st.Keys["a"].Pending
	st.Apply(&Begun{Op: put, Gen: 1})
	object := Absent("a")
	object.ETag = "1"
	st.Apply(&Done{Op: put, Object: object})
	st.Apply(&Renamed{File: 1, To: key("b")})
	st.Apply(&Adopted{File: 1})
	if st.Files[1].Staged || st.Files[1].Object != object {
		t.Fatalf("the file is %+v: that is not the case to be tested", st.Files[1])
	}
	if got := st.Depends("a"); len(got) != 1 || got[0] != 1 {
		t.Errorf("files %v need the object, want file 1", got)
	}
}

// renamedTree returns a state in which a directory of so many objects was renamed.
func renamedTree(files int) *State {
	st := NewState()
	for i := range files {
		old, fresh := fmt.Sprint("old/", i), fmt.Sprint("new/", i)
		at := Place{Dir: "old", Name: fmt.Sprint(i), Key: old, Base: oss.Object{Key: old, ETag: "1"}}
		st.Apply(&Opened{File: order.FileID(i + 1), At: at})
		st.Apply(&Renamed{File: order.FileID(i + 1), To: Place{Dir: "new", Name: fmt.Sprint(i), Key: fresh, Base: Absent(fresh)}})
	}
	return st
}

// TestObjectsThatNobodyNeedsAreForgotten: who was renamed needs the old object until it is
// published, and nothing remembers that for ever.
func TestObjectsThatNobodyNeedsAreForgotten(t *testing.T) {
	const files = 100
	st := renamedTree(files)
	if len(st.Displaced) != files {
		t.Fatalf("%d objects are needed, want %d", len(st.Displaced), files)
	}
	for i := range files {
		key := fmt.Sprint("new/", i)
		put := st.Keys[key].Pending
		st.Apply(&Begun{Op: put})
		st.Apply(&Done{Op: put, Object: oss.Object{Key: key, ETag: "1"}})
	}
	st.displacing = maxDisplacing
	st.Apply(&Opened{File: files + 1, At: Place{Name: "a", Key: "a", Base: oss.Object{Key: "a", ETag: "1"}}})
	st.Apply(&Renamed{File: files + 1, To: Place{Name: "b", Key: "b", Base: Absent("b")}})
	if len(st.Displaced) != 1 {
		t.Errorf("%d objects are remembered, want one", len(st.Displaced))
	}
}

// BenchmarkDepends is the question whether anybody needs an object, which is asked twice of each
// that is replaced or removed.
func BenchmarkDepends(b *testing.B) {
	for _, files := range []int{100, 10000, 100000} {
		b.Run(fmt.Sprintf("renamed=%d", files), func(b *testing.B) {
			st := renamedTree(files)
			for b.Loop() {
				if len(st.Depends("old/7")) != 1 || len(st.Depends("new/7")) > 0 {
					b.Fatal("one needs the old object, and none the new one")
				}
			}
		})
	}
}
