package writeback

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRecentSaysWhatALookAtEverythingWould: whatever comes, is committed again or goes.
func TestRecentSaysWhatALookAtEverythingWould(t *testing.T) {
	dirs := []string{"", "a", "a/b", "a/b/c", "a/d", "ab", "e/f/g", "e/f"}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		st := newState()
		var all []*operation
		for now := uint64(1); now < 200; now++ {
			switch i := r.IntN(len(all) + 1); {
			case i == len(all) || len(all) < 4:
				op := &operation{ID: now, Order: now, Dir: dirs[r.IntN(len(dirs))], Key: fmt.Sprint(r.IntN(20)), Barrier: r.IntN(2) == 0}
				all = append(all, op)
				st.recent.put(op)
			case r.IntN(3) == 0:
				st.recent.remove(all[i])
				all = slices.Delete(all, i, i+1)
			default:
				all[i].After, all[i].Barrier = now, all[i].Barrier || r.IntN(4) == 0
				if r.IntN(4) == 0 {
					all[i].Order = uint64(r.IntN(int(now)))
					all[i].After = 0
				}
				st.recent.put(all[i])
			}
			if len(st.recent.ops) != len(all) {
				t.Fatalf("seed %d: %d operations, want %d", seed, len(st.recent.ops), len(all))
			}
			dir, after := dirs[r.IntN(len(dirs))], uint64(r.IntN(int(now)))
			op := &operation{Dir: dir, Order: after, Key: fmt.Sprint(r.IntN(20))}
			other := func(x *operation) bool { return x.Key != op.Key }
			some := func(is func(x *operation) bool) bool {
				return slices.ContainsFunc(all, func(x *operation) bool { return x.lasted() > after && is(x) })
			}
			beside := some(func(x *operation) bool { return other(x) && within(dir, x.Dir) })
			apart := some(func(x *operation) bool { return x.Barrier && !within(x.Dir, dir) && !within(dir, x.Dir) })
			below := some(func(x *operation) bool { return x.Barrier && x.Dir != dir && within(x.Dir, dir) })
			for _, c := range []struct {
				name      string
				got, want bool
			}{
				{"beside", st.recent.beside(dir, after, other), beside},
				{"a barrier", st.recent.barrier(after, other), some(func(x *operation) bool { return other(x) && x.Barrier })},
				{"below", st.recent.barrierBelow(dir, after), below},
				{"apart", st.recent.barrierApart(dir, after), apart},
				{"yields", st.yields(op), below && !apart && !beside},
			} {
				if c.got != c.want {
					t.Fatalf("seed %d, moment %d, %q after %d: %s %v, want %v", seed, now, dir, after, c.name, c.got, c.want)
				}
			}
		}
		for _, op := range all {
			st.recent.remove(op)
		}
		if len(st.recent.dirs) > 1 || len(st.recent.ops) > 0 {
			t.Errorf("seed %d: %d directories and %d operations are left of nothing", seed, len(st.recent.dirs), len(st.recent.ops))
		}
	}
}

// pendingFiles returns a state in which latest waits, and behind it as many files, new ones
// and such as replace something, in directories below.
func pendingFiles(files int) *state {
	st := newState()
	closed := func(id fileID, dir, base, old string) {
		key := join(dir, base)
		at := place{Dir: dir, Name: base, Key: key, Base: absent(key)}
		at.Base.ETag = old
		st.apply(&createdRecord{File: id, At: at})
		st.apply(&closedRecord{File: id, Gen: 1})
	}
	closed(1, "", "latest", "")
	for i := range files {
		closed(fileID(i+2), fmt.Sprint("d/", i%100), fmt.Sprint(i), [2]string{"", "old"}[i%2])
	}
	return st
}

// TestRenewalLooksAtLittle: what is written again does not go through all that is pending.
func TestRenewalLooksAtLittle(t *testing.T) {
	const files = 10000
	st := pendingFiles(files)
	op := st.Ops[st.Keys["latest"].Pending]
	if !st.yields(op) {
		t.Error("latest keeps its place, for which nothing waits")
	}
	looked := 0
	mine := func(x *operation) bool { looked++; return x.Key != op.Key }
	if st.recent.beside(op.Dir, 0, mine) {
		t.Error("something is beside latest")
	}
	if !st.recent.barrier(op.Order, mine) {
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
			log := &fileState{ID: fileID(files) + 2, Dir: "d/1", Name: "log", Key: "d/1/log", Linked: true, Staged: true}
			st.Files[log.ID] = log
			st.key(log.Key, absent(log.Key))
			gen := generation(0)
			for b.Loop() {
				gen++
				st.apply(&closedRecord{File: log.ID, Gen: gen})
				st.apply(&closedRecord{File: 1, Gen: gen + 1})
				st.renewed = st.renewed[:0]
			}
		})
	}
}
