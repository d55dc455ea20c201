package order

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A file that is written again waits for what was closed since, which waits for the file:
// something must be able to begin, however much it is.
func TestScanFindsWhatMayBeginBeyondWhatIsEnough(t *testing.T) {
	const others = 50
	var q Queue
	q.Add(&Operation{ID: 1, Dir: "d", Order: 1, After: others + 2})
	for i := uint64(2); i < others+2; i++ {
		q.Add(&Operation{ID: i, Dir: "d", Order: i, After: i})
	}
	for _, failing := range []bool{false, true} {
		if failing {
			// What cannot succeed is no reason to look no further.
			q.Add(&Operation{ID: 0, Dir: "other", Order: 0})
		}
		seen, ready := 0, 0
		for _, v := range q.Scan(
			func(op *Operation) Standing { return Standing{Failing: op.ID == 0} },
			func(*Operation) bool { seen++; return seen >= others/2 },
		) {
			if v.Ready && v.Op.ID != 0 {
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
		var q Queue
		dir := "a"
		for i := uint64(1); i <= many; i++ {
			q.Add(&Operation{ID: i, Dir: dir, Order: i, After: i + 1000})
			if failing {
				dir = fmt.Sprint("a", i)
			} else {
				dir += "/b"
			}
		}
		q.Add(&Operation{ID: many + 1, Dir: dir, Order: many + 1, After: 2000})
		able := uint64(0)
		for _, v := range q.Scan(
			func(op *Operation) Standing { return Standing{Failing: failing && op.ID <= many} },
			func(*Operation) bool { return false },
		) {
			if v.Ready {
				able = v.Op.ID
			}
		}
		if able != many+1 {
			t.Errorf("failing %v: %d may begin, want %d", failing, able, many+1)
		}
	}
}

// What is removed within a second goes at once, but not before anything else, nor before
// what was removed above it.
func TestScanLetsRemovalsGoTogether(t *testing.T) {
	const second = int64(time.Second)
	gone := func(dir string, at int64) Operation {
		return Operation{Kind: Delete, Dir: dir, At: at, Again: at, Barrier: true}
	}
	put := Operation{Kind: Put, Dir: "other"}
	below := put
	below.Dir = "d/e"
	for name, c := range map[string]struct {
		ops     []Operation
		failing int
		want    []bool
	}{
		"a tree":                  {[]Operation{gone("d/e", 0), gone("d/e", 1), gone("d/f", second), gone("d", second)}, -1, []bool{true, true, true, true}},
		"over more than a second": {[]Operation{gone("d", 0), gone("d", second), gone("d", second+1)}, -1, []bool{true, true, false}},
		"after something new":     {[]Operation{gone("d", 0), put, gone("d", 1), gone("d", 2)}, -1, []bool{true, true, false, false}},
		"above, then below":       {[]Operation{gone("d", 0), gone("d/e", 1), gone("", 2)}, -1, []bool{true, false, true}},
		"something new after it":  {[]Operation{gone("d/e", 0), gone("d/f", 0), below}, -1, []bool{true, true, false}},
		"one fails beside it":     {[]Operation{gone("d", 0), gone("d", 1), gone("e", 1)}, 0, []bool{true, false, true}},
		"one fails above":         {[]Operation{gone("d", 0), gone("d/e", 1)}, 0, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var q Queue
			for i := range c.ops {
				op := &c.ops[i]
				op.ID, op.Order, op.After = uint64(i), uint64(i+1), uint64(i+1)
				q.Add(op)
			}
			var got []bool
			for _, v := range q.Scan(
				func(op *Operation) Standing { return Standing{Failing: int(op.ID) == c.failing} },
				func(*Operation) bool { return false },
			) {
				got = append(got, v.Ready)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("may begin: %v, want %v", got, c.want)
			}
		})
	}
}

// What fails holds back what is behind it in its directory, and neither of them what is elsewhere:
// but for the removal that would take the last object of one that is held back.
func TestScanPassesWhatIsBehindWhatFails(t *testing.T) {
	const fails = 0
	put := func(dir string) Operation { return Operation{Kind: Put, Dir: dir} }
	over := func(dir string) Operation { return Operation{Kind: Put, Dir: dir, Barrier: true} }
	gone := func(dir string) Operation { return Operation{Kind: Delete, Dir: dir, Barrier: true} }
	for name, c := range map[string]struct {
		ops []Operation
		// kept is the place of what the last operation must not come before, -1 if there is none.
		kept int
		// changes: the first fails only because it is being changed.
		changes bool
		want    []bool
	}{
		"elsewhere":                    {[]Operation{put("d"), put("d"), over("e")}, -1, false, []bool{true, false, true}},
		"behind what is behind it":     {[]Operation{put("d/e"), over("d"), put(""), over("f")}, -1, false, []bool{true, false, false, true}},
		"above":                        {[]Operation{put("d"), put("d"), over("")}, -1, false, []bool{true, false, false}},
		"behind another":               {[]Operation{put("d"), put("d"), put("f"), over("e")}, -1, false, []bool{true, false, true, false}},
		"removed elsewhere":            {[]Operation{put("d"), put("d"), gone("e")}, -1, false, []bool{true, false, true}},
		"the last object of that one":  {[]Operation{put("d"), put("d"), gone("e")}, 1, false, []bool{true, false, false}},
		"of the one that fails":        {[]Operation{put("d"), put("d"), gone("e")}, 0, false, []bool{true, false, false}},
		"below what is replaced":       {[]Operation{put("d"), over(""), gone("e"), gone("f/g"), over("e/f")}, -1, false, []bool{true, false, false, false, true}},
		"below what is removed":        {[]Operation{put("d"), gone(""), gone("e"), gone("e/f"), put("e"), over("f")}, -1, false, []bool{true, false, false, false, false, true}},
		"below what is new":            {[]Operation{put("d"), put(""), gone("e")}, -1, false, []bool{true, false, true}},
		"behind what is being changed": {[]Operation{put("d"), put("d"), over("e")}, -1, true, []bool{true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var q Queue
			for i := range c.ops {
				op := &c.ops[i]
				op.ID, op.Order, op.After = uint64(i), uint64(i+1), uint64(i+1)
				q.Add(op)
			}
			last := len(c.ops) - 1
			verdicts := q.Scan(func(op *Operation) Standing {
				st := Standing{Failing: op.ID == fails, Refused: op.ID == fails && !c.changes}
				if c.kept >= 0 && int(op.ID) == last {
					st.Kept = &c.ops[c.kept]
				}
				return st
			}, func(*Operation) bool { return false })
			var got []bool
			for _, v := range verdicts {
				got = append(got, v.Ready)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("may begin: %v, want %v", got, c.want)
			}
			if kept := verdicts[last].Kept; c.kept >= 0 && kept != &c.ops[c.kept] {
				t.Errorf("the removal waits for %v, want what it must not come before", kept)
			}
		})
	}
}
