package writeback

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

// What is removed within a second goes at once, but not before anything else, nor before
// what was removed above it.
func TestScanLetsRemovalsGoTogether(t *testing.T) {
	const second = int64(time.Second)
	gone := func(dir string, at int64) operation {
		return operation{Kind: opDelete, Dir: dir, At: at, Again: at, Barrier: true}
	}
	put := operation{Kind: opPut, Dir: "other"}
	below := put
	below.Dir = "d/e"
	for name, c := range map[string]struct {
		ops     []operation
		failing int
		want    []bool
	}{
		"a tree":                  {[]operation{gone("d/e", 0), gone("d/e", 1), gone("d/f", second), gone("d", second)}, -1, []bool{true, true, true, true}},
		"over more than a second": {[]operation{gone("d", 0), gone("d", second), gone("d", second+1)}, -1, []bool{true, true, false}},
		"after something new":     {[]operation{gone("d", 0), put, gone("d", 1), gone("d", 2)}, -1, []bool{true, true, false, false}},
		"above, then below":       {[]operation{gone("d", 0), gone("d/e", 1), gone("", 2)}, -1, []bool{true, false, true}},
		"something new after it":  {[]operation{gone("d/e", 0), gone("d/f", 0), below}, -1, []bool{true, true, false}},
		"one fails beside it":     {[]operation{gone("d", 0), gone("d", 1), gone("e", 1)}, 0, []bool{true, false, true}},
		"one fails above":         {[]operation{gone("d", 0), gone("d/e", 1)}, 0, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var q opQueue
			for i := range c.ops {
				op := &c.ops[i]
				op.ID, op.Order, op.After = uint64(i), uint64(i+1), uint64(i+1)
				q.add(op)
			}
			var got []bool
			for _, v := range q.scan(
				func(op *operation) standing { return standing{failing: int(op.ID) == c.failing} },
				func(*operation) bool { return false },
			) {
				got = append(got, v.ready)
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
	put := func(dir string) operation { return operation{Kind: opPut, Dir: dir} }
	over := func(dir string) operation { return operation{Kind: opPut, Dir: dir, Barrier: true} }
	gone := func(dir string) operation { return operation{Kind: opDelete, Dir: dir, Barrier: true} }
	for name, c := range map[string]struct {
		ops []operation
		// kept is the place of what the last operation must not come before, -1 if there is none.
		kept int
		// changes: the first fails only because it is being changed.
		changes bool
		want    []bool
	}{
		"elsewhere":                    {[]operation{put("d"), put("d"), over("e")}, -1, false, []bool{true, false, true}},
		"behind what is behind it":     {[]operation{put("d/e"), over("d"), put(""), over("f")}, -1, false, []bool{true, false, false, true}},
		"above":                        {[]operation{put("d"), put("d"), over("")}, -1, false, []bool{true, false, false}},
		"behind another":               {[]operation{put("d"), put("d"), put("f"), over("e")}, -1, false, []bool{true, false, true, false}},
		"removed elsewhere":            {[]operation{put("d"), put("d"), gone("e")}, -1, false, []bool{true, false, true}},
		"the last object of that one":  {[]operation{put("d"), put("d"), gone("e")}, 1, false, []bool{true, false, false}},
		"of the one that fails":        {[]operation{put("d"), put("d"), gone("e")}, 0, false, []bool{true, false, false}},
		"below what is replaced":       {[]operation{put("d"), over(""), gone("e"), gone("f/g"), over("e/f")}, -1, false, []bool{true, false, false, false, true}},
		"below what is removed":        {[]operation{put("d"), gone(""), gone("e"), gone("e/f"), put("e"), over("f")}, -1, false, []bool{true, false, false, false, false, true}},
		"below what is new":            {[]operation{put("d"), put(""), gone("e")}, -1, false, []bool{true, false, true}},
		"behind what is being changed": {[]operation{put("d"), put("d"), over("e")}, -1, true, []bool{true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var q opQueue
			for i := range c.ops {
				op := &c.ops[i]
				op.ID, op.Order, op.After = uint64(i), uint64(i+1), uint64(i+1)
				q.add(op)
			}
			last := len(c.ops) - 1
			verdicts := q.scan(func(op *operation) standing {
				st := standing{failing: op.ID == fails, refused: op.ID == fails && !c.changes}
				if c.kept >= 0 && int(op.ID) == last {
					st.kept = &c.ops[c.kept]
				}
				return st
			}, func(*operation) bool { return false })
			var got []bool
			for _, v := range verdicts {
				got = append(got, v.ready)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("may begin: %v, want %v", got, c.want)
			}
			if kept := verdicts[last].kept; c.kept >= 0 && kept != &c.ops[c.kept] {
				t.Errorf("the removal waits for %v, want what it must not come before", kept)
			}
		})
	}
}

// TestRemovedTreeIsGoneSoon: whoever removes a thousand files does not wait for a thousand
// pairs of requests one after another.
func TestRemovedTreeIsGoneSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const dirs, files = 10, 50
		w := newWorld(t, 1)
		for i := range dirs * files {
			w.store.put(fmt.Sprintf("p/tree/%d/%d", i%dirs, i), "content")
		}
		began := time.Now()
		for d := range dirs {
			dir := fmt.Sprintf("tree/%d", d)
			for i := d; i < dirs*files; i += dirs {
				if err := w.space.Unlink(t.Context(), dir, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.space.Rmdir(t.Context(), "tree", fmt.Sprint(d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.space.Rmdir(t.Context(), "", "tree"); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		w.drain()
		// A request takes 20 ms in the mean, and each removal two of them.
		took := time.Since(removed)
		t.Logf("%d removals, made in %v, were published in %v", dirs*files, removed.Sub(began), took)
		if took > 2*time.Second {
			t.Error("want two seconds at most")
		}
		if got := w.inBucket(); len(got) > 0 {
			t.Errorf("%d objects are left", len(got))
		}
		w.stop()
	})
}
