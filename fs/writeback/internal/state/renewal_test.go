package state

import (
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// pendingFiles returns a state in which latest waits, and behind it as many files, new ones
// and such as replace something, in directories below.
func pendingFiles(files int) *State {
	st := NewState()
	closed := func(id order.FileID, dir, base, old string) {
		key := order.Join(dir, base)
		at := Place{Dir: dir, Name: base, Key: key, Base: Absent(key)}
		at.Base.ETag = old
		st.Apply(&Created{File: id, At: at})
		st.Apply(&Closed{File: id, Gen: 1})
	}
	closed(1, "", "latest", "")
	for i := range files {
		closed(order.FileID(i+2), fmt.Sprint("d/", i%100), fmt.Sprint(i), [2]string{"", "old"}[i%2])
	}
	return st
}

// TestRenewalLooksAtLittle: what is written again does not go through all that is pending.
func TestRenewalLooksAtLittle(t *testing.T) {
	const files = 10000
	st := pendingFiles(files)
	op := st.Ops[st.Keys["latest"].Pending]
	if !st.recent.Yields(op) {
		t.Error("latest keeps its place, for which nothing waits")
	}
	looked := 0
	mine := func(x *order.Operation) bool { looked++; return x.Key != op.Key }
	if st.recent.Beside(op.Dir, 0, mine) {
		t.Error("something is beside latest")
	}
	if !st.recent.Barrier(op.Order, mine) {
		t.Error("nothing replaces anything")
	}
	if looked > 5 {
		t.Errorf("%d of %d operations were looked at", looked, files)
	}
}

// BenchmarkRenewal is the close of a file that was written again, and waits, with others
// behind it.
func BenchmarkRenewal(b *testing.B) {
	for _, files := range []int{100, 10000, 100000} {
		b.Run(fmt.Sprintf("pending=%d", files), func(b *testing.B) {
			st := pendingFiles(files)
			log := &File{ID: order.FileID(files) + 2, Dir: "d/1", Name: "log", Key: "d/1/log", Linked: true, Staged: true}
			st.Files[log.ID] = log
			st.key(log.Key, Absent(log.Key))
			gen := order.Generation(0)
			for b.Loop() {
				gen++
				st.Apply(&Closed{File: log.ID, Gen: gen})
				st.Apply(&Closed{File: 1, Gen: gen + 1})
				st.Renewed = st.Renewed[:0]
			}
		})
	}
}
