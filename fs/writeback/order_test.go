package writeback

import (
	"fmt"
	"testing"
)

// A file that is written again waits for what was closed since, which waits for the file:
// something must be able to begin, however much it is.
func TestScanFindsWhatMayBeginBeyondWhatIsEnough(t *testing.T) {
	const others = 50
	var q opQueue
	q.add(&operation{ID: 1, Dir: "d", Order: 1, After: others + 2})
	for i := uint64(2); i < others+2; i++ {
		q.add(&operation{ID: i, Dir: "d", Order: i, After: i})
	}
	for _, failing := range []bool{false, true} {
		if failing {
			// What cannot succeed is no reason to look no further.
			q.add(&operation{ID: 0, Dir: "other", Order: 0})
		}
		seen, ready := 0, 0
		for _, v := range q.scan(
			func(op *operation) standing { return standing{failing: op.ID == 0} },
			func(*operation) bool { seen++; return seen >= others/2 },
		) {
			if v.ready && v.op.ID != 0 {
				ready++
			}
		}
		if ready != 1 {
			t.Errorf("failing %v: %d may begin, want the file that all wait for", failing, ready)
		}
	}
}

// Any number of files that were written again may wait for one more that was, or fail:
// that one begins.
func TestFileThatWasWrittenAgainBeginsBehindManyOthers(t *testing.T) {
	const many = maxStretched + 5
	for _, failing := range []bool{false, true} {
		var q opQueue
		dir := "a"
		for i := uint64(1); i <= many; i++ {
			q.add(&operation{ID: i, Dir: dir, Order: i, After: i + 1000})
			if failing {
				dir = fmt.Sprint("a", i)
			} else {
				dir += "/b"
			}
		}
		q.add(&operation{ID: many + 1, Dir: dir, Order: many + 1, After: 2000})
		able := uint64(0)
		for _, v := range q.scan(
			func(op *operation) standing { return standing{failing: failing && op.ID <= many} },
			func(*operation) bool { return false },
		) {
			if v.ready {
				able = v.op.ID
			}
		}
		if able != many+1 {
			t.Errorf("failing %v: %d may begin, want %d", failing, able, many+1)
		}
	}
}
