package manifest

import (
	"context"
	"errors"
	"path"
	"testing"

	"pgregory.net/rapid"
)

// Diff tells exactly which names mean something else, whatever the two states are.
func TestDiffTellsWhatChanged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := drawBucket(rt)
		after := newFakeBucket()
		for _, r := range recordsOf(before, "") {
			switch rapid.IntRange(0, 3).Draw(rt, "fate") {
			case 0: // goes
			case 1:
				after.put(r.Key, r.Size+1)
			default:
				after.store(before.mu.objects[r.Key])
			}
		}
		for _, r := range recordsOf(drawBucket(rt), "") {
			if rapid.Bool().Draw(rt, "comes") {
				after.put(r.Key, r.Size)
			}
		}
		b := snapshotOf(rt, "", SnapshotConfig{}, recordsOf(before, ""))
		defer b.Close()
		a := snapshotOf(rt, "", SnapshotConfig{}, recordsOf(after, ""))
		defer a.Close()
		was, is := modelOf(before, ""), modelOf(after, "")
		dirs := map[string]bool{"absent": true}
		for dir := range was.dirs {
			dirs[dir] = true
		}
		for dir := range is.dirs {
			dirs[dir] = true
		}
		swap := Swap{Before: b, After: a}
		for dir := range dirs {
			told, known := map[string]bool{}, map[string]bool{}
			if err := swap.Diff(context.Background(), dir, func(d Difference) bool {
				told[d.Name] = true
				if (d.Before == nil || d.Before.Name != d.Name) && (d.After == nil || d.After.Name != d.Name) {
					rt.Fatalf("in %q: %+v", dir, d)
				}
				return true
			}); err != nil {
				rt.Fatal(err)
			}
			for _, m := range []*model{was, is} {
				for name := range m.dirs[dir] {
					if want := was.dirs[dir][name] != is.dirs[dir][name]; told[name] != want {
						rt.Fatalf("%q: told: %v, want %v: %+v, %+v", path.Join(dir, name), told[name], want, was.dirs[dir][name], is.dirs[dir][name])
					}
					known[name] = true
				}
			}
			for name := range told {
				if !known[name] {
					rt.Fatalf("told of %q, which never was", path.Join(dir, name))
				}
			}
		}
	})
}

func TestDiffTellsOfAttributes(t *testing.T) {
	r := Record{Key: "a", ETag: "X"}
	b := snapshotOf(t, "", SnapshotConfig{}, []Record{r})
	defer b.Close()
	r.Attr = &Attr{Known: AttrMode, Mode: 0o755}
	a := snapshotOf(t, "", SnapshotConfig{}, []Record{r})
	defer a.Close()
	var told []string
	swap := Swap{Before: b, After: a}
	if err := swap.Diff(t.Context(), "", func(d Difference) bool {
		told = append(told, d.Name)
		return true
	}); err != nil || len(told) != 1 {
		t.Errorf("told of %q, %v", told, err)
	}
}

func TestDiffReturnsTheErrorOfATree(t *testing.T) {
	s := snapshotOf(t, "", SnapshotConfig{}, []Record{{Key: "a", ETag: "X"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	for _, swap := range []Swap{{Before: failing{s, gone}, After: s}, {Before: s, After: failing{s, gone}}} {
		if err := swap.Diff(t.Context(), "", func(Difference) bool { return true }); err == nil {
			t.Error("no error")
		}
	}
}

// failing is a tree whose directories cannot be read.
type failing struct {
	Tree
	err error
}

func (f failing) ReadDir(context.Context, string, string, int) ([]Entry, Validity, error) {
	return nil, Validity{}, f.err
}
