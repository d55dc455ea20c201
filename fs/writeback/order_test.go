package writeback

import "testing"

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
