package state

import (
	"runtime"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// TestASnapshotIsMadeInPlace: to let it grow step by step would take several times what it holds.
func TestASnapshotIsMadeInPlace(t *testing.T) {
	const files, size = 200, 64 << 10
	st, inline := NewState(), make(map[order.FileID]Content)
	for id := order.FileID(1); id <= files; id++ {
		st.Files[id] = &File{ID: id, Gen: 1, Inline: 1, Size: size, Staged: true}
		inline[id] = Content{Gen: 1, Data: make([]byte, size)}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	made, err := st.Snapshot(inline, nil)
	runtime.ReadMemStats(&after)
	if err != nil || len(made) < files*size {
		t.Fatalf("%d bytes, %v", len(made), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > files*size*3/2 {
		t.Errorf("%d bytes were allocated to make %d", took, len(made))
	}
}
