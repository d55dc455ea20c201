package listing

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// shifting is a view of one directory, whose names change while attributes are asked for.
type shifting struct {
	names.View
	names   map[string]oss.Object
	known   map[oss.Object]*manifest.Attr
	changes func()
}

func (s *shifting) ReadDir(_ context.Context, _, after string, limit int) (page []names.Entry, _ manifest.Validity, _ error) {
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		if name > after && len(page) < limit {
			attr := s.known[s.names[name]]
			page = append(page, names.Entry{Entry: manifest.Entry{Name: name, Object: s.names[name], Attr: attr, Partial: attr == nil, Cursor: name}})
		}
	}
	return page, manifest.Validity{}, nil
}

func (s *shifting) Complete(_ context.Context, _ string, entries []manifest.Entry) {
	for _, e := range entries {
		s.known[e.Object] = &manifest.Attr{Known: manifest.AttrMode, Mode: 0o600}
	}
	if s.changes != nil {
		s.changes()
	}
}

// While an answer waits for attributes, names are removed, made and replaced: it tells what is
// there after the wait, whether the page was read by this answer or by one before.
func TestListingThatWaitedTellsWhatIsThereNow(t *testing.T) {
	for _, before := range []bool{true, false} {
		s := &shifting{names: make(map[string]oss.Object), known: make(map[oss.Object]*manifest.Attr)}
		version := func(name, etag string) oss.Object { return oss.Object{Key: name, ETag: etag, Size: 1} }
		for _, name := range []string{"kept", "removed", "rewritten"} {
			s.names[name] = version(name, "1")
		}
		s.changes = func() {
			s.changes = nil
			delete(s.names, "removed")
			s.names["rewritten"] = version("rewritten", "2")
			s.names["made"] = version("made", "1")
		}
		d := New("")
		list, _ := d.Enter(time.Now())
		r := &Reader{Tree: s, Dir: d, List: list, Position: DotEntries}
		if before {
			must(t, r.Fill(t.Context()))
		}
		ctx, end := context.WithCancel(t.Context())
		done := r.Complete(&Completing{Tree: s, Ctx: ctx, end: end})
		shown := make(map[string]oss.Object)
		for {
			must(t, r.Fill(t.Context()))
			if len(r.Pending) == 0 {
				break
			}
			e := &r.Pending[0]
			shown[e.Name] = e.Object
			if e.Name == "kept" && e.Partial {
				t.Error("what was asked for has no attributes")
			}
			r.Next()
		}
		done()
		want := map[string]oss.Object{"kept": version("kept", "1"), "made": version("made", "1"), "rewritten": version("rewritten", "2")}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("read before %t (-want +shown):\n%s", before, diff)
		}
		if ctx.Err() == nil || r.completing != nil {
			t.Error("the wait goes on after the answer")
		}
	}
}

// renaming is a view of two directories; while attributes are asked for, one is renamed and the
// other takes its name.
type renaming struct {
	names.View
	names map[string][]string
	while func()
}

func (s *renaming) ReadDir(_ context.Context, dir, after string, limit int) (page []names.Entry, _ manifest.Validity, _ error) {
	for _, name := range s.names[dir] {
		if name > after && len(page) < limit {
			page = append(page, names.Entry{Entry: manifest.Entry{Name: name, Partial: true, Cursor: name}})
		}
	}
	return page, manifest.Validity{}, nil
}

func (s *renaming) Complete(context.Context, string, []manifest.Entry) { s.while() }

func TestListingThatWaitedTellsOfItsDirectoryWhereverItIs(t *testing.T) {
	s := &renaming{names: map[string][]string{"a": {"mine"}, "b": {"other"}}}
	d := New("a")
	s.while = func() {
		s.names = map[string][]string{"c": {"mine"}, "a": {"other"}}
		now := "c"
		d.Path.Store(&now)
	}
	list, _ := d.Enter(time.Now())
	r := &Reader{Tree: s, Dir: d, List: list, Position: DotEntries}
	ctx, end := context.WithCancel(t.Context())
	defer r.Complete(&Completing{Tree: s, Ctx: ctx, end: end})()
	must(t, r.Fill(t.Context()))
	if len(r.Pending) != 1 || r.Pending[0].Name != "mine" {
		t.Errorf("the directory that was renamed lists %+v", r.Pending)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
