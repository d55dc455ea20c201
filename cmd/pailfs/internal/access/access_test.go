package access

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/session"
)

// shown is what a mount shows: names by path, with the target of links.
type shown struct {
	nodes   map[string]*pailfs.Shown
	targets map[string]string
	// moment counts renames of directories, and renamed has what it was at the last one
	// from or to a path.
	moment  uint64
	renamed map[string]uint64
	// barred are paths that the bucket denies.
	barred map[string]bool
	// before is called at every lookup.
	before func(dir, name string)
	asked  []string
	made   uint64
}

var _ Names = (*shown)(nil)

func newShown() *shown {
	s := &shown{nodes: map[string]*pailfs.Shown{}, targets: map[string]string{}, renamed: map[string]uint64{}}
	s.put("", manifest.Directory, 0o755, 0)
	return s
}

func (s *shown) put(at string, kind manifest.Kind, mode, uid uint32) {
	e := manifest.Entry{Name: path.Base(at), Kind: kind, Cursor: path.Base(at)}
	if kind == manifest.File {
		e.Object = oss.Object{Key: at, ETag: "E", Size: 7}
	}
	s.made++
	s.nodes[at] = &pailfs.Shown{Entry: e, Mode: mode, UID: uid, GID: 100, ID: s.made}
}

func (s *shown) dir(at string, mode, uid uint32)  { s.put(at, manifest.Directory, mode, uid) }
func (s *shown) file(at string, mode, uid uint32) { s.put(at, manifest.File, mode, uid) }

func (s *shown) link(at, target string) {
	s.put(at, manifest.Symlink, 0o777, 0)
	s.targets[at] = target
}

func (s *shown) Root() pailfs.Shown { return *s.nodes[""] }

func (s *shown) Lookup(_ context.Context, dir, name string) (pailfs.Shown, error) {
	if s.before != nil {
		s.before(dir, name)
	}
	at := join(dir, name)
	s.asked = append(s.asked, at)
	if s.barred[at] {
		return pailfs.Shown{}, fmt.Errorf("head %q: %w", at, oss.ErrAccessDenied)
	}
	if n := s.nodes[at]; n != nil {
		return *n, nil
	}
	return pailfs.Shown{}, fmt.Errorf("look up %q: %w", at, iofs.ErrNotExist)
}

func (s *shown) ReadDir(_ context.Context, dir, after string, limit int) (page []pailfs.Shown, _ error) {
	for at, n := range s.nodes {
		if at != "" && strings.TrimSuffix(path.Dir(at), ".") == dir && n.Name > after {
			e := *n
			e.Partial = true
			page = append(page, e)
		}
	}
	slices.SortFunc(page, func(a, b pailfs.Shown) int { return strings.Compare(a.Name, b.Name) })
	return page[:min(len(page), limit)], nil
}

func (s *shown) ReadLink(_ context.Context, l pailfs.Shown) (string, error) {
	for at, n := range s.nodes {
		if n.Name == l.Name && n.Kind == manifest.Symlink {
			return s.targets[at], nil
		}
	}
	return "", iofs.ErrInvalid
}

func (s *shown) Moment() uint64 { return s.moment }

func (s *shown) Renamed(dir string, since uint64) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if s.renamed[dir] > since {
			return true
		}
	}
	return false
}

// rename notes a rename of a directory from or to a path.
func (s *shown) rename(at string) {
	s.moment += 2
	s.renamed[at] = s.moment
}

// in returns somebody who has a descriptor of a directory.
func (s *shown) in(dir string) session.Who {
	return session.As(7, 7, session.Groups{}, session.Base{Path: dir, ID: s.nodes[dir].ID})
}

func (s *shown) rights() *Rights {
	return New(func(context.Context) (Names, error) { return s, nil }, false)
}

var (
	somebody = session.As(7, 7, session.Groups{}, session.Base{})
	member   = session.As(8, 8, session.GroupsOf([]uint32{100}), session.Base{})
)

// TestNothingIsAskedBehindWhatMayNotBeSearched: not even whether it is there.
func TestNothingIsAskedBehindWhatMayNotBeSearched(t *testing.T) {
	s := newShown()
	s.dir("vault", 0o750, 0)
	s.file("vault/x", 0o644, 0)
	for _, name := range []string{"vault/x", "vault/none", "vault/x/below"} {
		if _, err := s.rights().Open(t.Context(), somebody, name); !errors.Is(err, iofs.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if slices.ContainsFunc(s.asked, func(at string) bool { return strings.HasPrefix(at, "vault/") }) {
		t.Errorf("looked up %v", s.asked)
	}
	if _, err := s.rights().Open(t.Context(), member, "vault/x"); err != nil {
		t.Error(err)
	}
	if _, err := s.rights().Open(t.Context(), session.Who{}, "vault/x"); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("nobody: %v", err)
	}
}

// TestADirectoryThatIsRenamedMeanwhileIsNotMistaken: the mode of one directory does not let
// anybody into another that takes its name.
func TestADirectoryThatIsRenamedMeanwhileIsNotMistaken(t *testing.T) {
	s := newShown()
	s.dir("d", 0o755, 7)
	s.file("d/x", 0o644, 7)
	swap := false
	s.before = func(dir, _ string) {
		if dir == "d" && !swap { // its mode has been asked
			swap = true
			s.rename("d")
			s.dir("d", 0o700, 0)
		}
	}
	if f, err := s.rights().Open(t.Context(), somebody, "d/x"); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("found %+v, %v", f, err)
	}
	if !swap {
		t.Error("nothing was renamed")
	}
	s.before = func(string, string) { s.rename("d") }
	s.dir("d", 0o755, 0)
	if _, err := s.rights().Open(t.Context(), somebody, "d/x"); err == nil || errors.Is(err, iofs.ErrPermission) {
		t.Errorf("while the directory is renamed all the time: %v", err)
	}
}

// TestWhoRenamesOtherDirectoriesAllTheTimeKeepsNobodyOut: neither beside nor below those on
// the way.
func TestWhoRenamesOtherDirectoriesAllTheTimeKeepsNobodyOut(t *testing.T) {
	s := newShown()
	s.dir("d", 0o755, 0)
	s.file("d/x", 0o644, 0)
	s.dir("d/theirs", 0o755, 9)
	s.dir("theirs", 0o755, 9)
	asked := 0
	s.before = func(string, string) {
		asked++
		s.rename("theirs")
		s.rename("d/theirs")
	}
	if _, err := s.rights().Open(t.Context(), somebody, "d/x"); err != nil || asked != 2 {
		t.Errorf("%v, after %d lookups", err, asked)
	}
	if page, err := s.rights().ReadDir(t.Context(), somebody, "d", ""); err != nil || len(page) != 2 || page[0].Err != nil || page[1].Err != nil {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestADirectoryThatTookTheNameOfTheCallersIsWalkedTo from the root: who has a descriptor of
// one need not search what is above it, but above no other.
func TestADirectoryThatTookTheNameOfTheCallersIsWalkedTo(t *testing.T) {
	s := newShown()
	for _, dir := range []string{"a", "shut", "shut/b"} {
		s.dir(dir, 0o755, 0)
	}
	s.dir("a/b", 0o755, 0)
	s.file("a/b/x", 0o644, 0)
	s.dir("a", 0o700, 0)
	who := s.in("a/b")
	if _, err := s.rights().Open(t.Context(), who, "a/b/x"); err != nil {
		t.Errorf("below a descriptor: %v", err)
	}
	s.dir("a/b", 0o755, 0) // another one
	for _, name := range []string{"a/b/x", "a/b/missing", "a/b"} {
		if f, err := s.rights().Open(t.Context(), who, name); !errors.Is(err, iofs.ErrPermission) {
			t.Errorf("%s, which is another directory's now: %+v, %v", name, f, err)
		}
		if err := s.rights().Refused(t.Context(), who, name); !errors.Is(err, iofs.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(s.nodes, "a/b")
	if err := s.rights().Refused(t.Context(), who, "a/b/x"); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("not even that it is gone is told: %v", err)
	}
	s.dir("a", 0o755, 0)
	s.dir("a/b", 0o755, 0)
	if _, err := s.rights().Open(t.Context(), who, "a/b/x"); err != nil {
		t.Errorf("where anybody may walk: %v", err)
	}
}

// TestWhatTheBucketDeniesIsLeftOut of a listing: the rest is told.
func TestWhatTheBucketDeniesIsLeftOut(t *testing.T) {
	s := newShown()
	s.dir("d", 0o755, 0)
	for _, name := range []string{"d/a", "d/barred", "d/z"} {
		s.file(name, 0o644, 0)
	}
	s.barred = map[string]bool{"d/barred": true}
	page, err := s.rights().ReadDir(t.Context(), somebody, "d", "")
	if err != nil || len(page) != 3 || page[0].Err != nil || page[2].Object.Size != 7 {
		t.Fatal(page, err)
	}
	if !errors.Is(page[1].Err, oss.ErrAccessDenied) || page[1].Object != (oss.Object{}) {
		t.Errorf("%+v", page[1])
	}
}

// TestAFifoIsNeitherReadNorListed: the bucket knows none.
func TestAFifoIsNeitherReadNorListed(t *testing.T) {
	s := newShown()
	s.dir("d", 0o755, 0)
	s.file("d/x", 0o644, 0)
	s.put("d/fifo", 0x80, 0o644, 7)
	if f, err := s.rights().Open(t.Context(), somebody, "d/fifo"); err == nil {
		t.Errorf("%+v", f)
	}
	if page, err := s.rights().ReadDir(t.Context(), somebody, "d", ""); err != nil || len(page) != 1 || page[0].Path != "d/x" {
		t.Errorf("%+v, %v", page, err)
	}
	s.put("d/fifo", 0x80, 0o600, 0)
	if err := s.rights().Refused(t.Context(), somebody, "d/fifo"); !errors.Is(err, iofs.ErrPermission) {
		t.Error(err)
	}
}

func TestLinksAreFollowedWithinTheView(t *testing.T) {
	s := newShown()
	s.dir("a", 0o755, 0)
	s.dir("a/b", 0o755, 0)
	s.file("a/x", 0o644, 0)
	s.file("a/b/y", 0o644, 0)
	s.dir("shut", 0o700, 0)
	s.file("shut/z", 0o644, 0)
	for at, target := range map[string]string{
		"l1": "a/b/../x", "a/l2": "../a/b", "a/b/l3": "../x", "l4": "shut/z", "l5": "/etc/passwd", "l6": "../../etc", "l7": "l7", "l8": "shut/../a/x",
	} {
		s.link(at, target)
	}
	inB := s.in("a/b")
	for _, test := range []struct {
		who  session.Who
		name string
		at   string
		err  error
	}{
		{somebody, "l1", "a/x", nil},
		{somebody, "a/l2/y", "a/b/y", nil},
		{somebody, "a/b/l3", "a/x", nil},
		{inB, "a/b/l3", "", iofs.ErrPermission},
		{inB, "a/b/y", "a/b/y", nil},
		{somebody, "l4", "", iofs.ErrPermission},
		{somebody, "l5", "", iofs.ErrNotExist},
		{somebody, "l6", "", iofs.ErrPermission},
		{somebody, "l8", "", iofs.ErrPermission},
		{session.Root(), "l8", "a/x", nil},
		{session.Root(), "l4", "shut/z", nil},
		{session.Root(), "l5", "", iofs.ErrNotExist},
	} {
		got, err := s.rights().Open(t.Context(), test.who, test.name)
		if got.Path != test.at || !errors.Is(err, test.err) {
			t.Errorf("%s: %+v, %v, want %s, %v", test.name, got, err, test.at, test.err)
		}
	}
	if _, err := s.rights().Open(t.Context(), somebody, "l7"); err == nil {
		t.Error("a loop leads somewhere")
	}
	// Others may have found what is there, or what was: that is not told either.
	for name, who := range map[string]session.Who{"a/b/l3": inB, "l5": somebody, "l6": somebody} {
		if err := s.rights().Refused(t.Context(), who, name); !errors.Is(err, iofs.ErrPermission) {
			t.Errorf("%s is told: %v", name, err)
		}
	}
	if err := s.rights().Refused(t.Context(), somebody, "a/b/l3"); err != nil {
		t.Errorf("within the view: %v", err)
	}
}

// TestADirectoryThatMayNotBeSearchedHasNamesOnly: as ls shows them, without sizes.
func TestADirectoryThatMayNotBeSearchedHasNamesOnly(t *testing.T) {
	s := newShown()
	s.dir("d", 0o744, 0)
	s.file("d/x", 0o644, 0)
	s.link("d/l", "x")
	page, err := s.rights().ReadDir(t.Context(), somebody, "d", "")
	if err != nil || len(page) != 1 {
		t.Fatal(page, err)
	}
	for _, f := range page {
		if !errors.Is(f.Err, iofs.ErrPermission) || f.Object != (oss.Object{}) {
			t.Errorf("%+v", f)
		}
	}
	if page, err = s.rights().ReadDir(t.Context(), session.Root(), "d", ""); err != nil || len(page) != 1 || page[0].Object.Size != 7 {
		t.Errorf("%+v, %v", page, err)
	}
	s.dir("d", 0o711, 0)
	if page, err = s.rights().ReadDir(t.Context(), somebody, "d", ""); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestKeepIsWhatTheKernelWouldAllow(t *testing.T) {
	s := newShown()
	s.dir("own", 0o755, 7)
	s.file("own/theirs", 0o600, 9)
	s.file("own/shared", 0o666, 9)
	s.dir("theirs", 0o755, 9)
	s.dir("tmp", 0o1777, 9)
	s.file("tmp/shared", 0o666, 9)
	s.file("tmp/mine", 0o600, 7)
	s.dir("group", 0o770, 9)
	s.dir("vault", 0o700, 0)
	s.link("way", "own")
	for name, want := range map[string]bool{
		"own/new": true, "own/sub/dir/new": true, "own/theirs": false, "own/shared": true, "theirs/new": false, "theirs/sub/new": false,
		"tmp/new": true, "tmp/shared": false, "tmp/mine": true, "group/new": false, "vault/new": false, "vault/sub/new": false,
		"way/new": false, "own": false, "new": false, "own/shared/below": false,
	} {
		if err := s.rights().Keep(t.Context(), somebody, name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.rights().Keep(t.Context(), member, "group/new"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"vault/new", "tmp/shared", "new"} {
		if err := s.rights().Keep(t.Context(), session.Root(), name); err != nil {
			t.Errorf("root, %s: %v", name, err)
		}
	}
}

// TestWhereAllModesAreAlikeNothingIsLookedUp for who may read all.
func TestWhereAllModesAreAlikeNothingIsLookedUp(t *testing.T) {
	s := newShown()
	r := New(func(context.Context) (Names, error) { return s, nil }, true)
	if err := r.Refused(t.Context(), somebody, "a/b/c"); err != nil || len(s.asked) > 0 {
		t.Errorf("%v, asked for %v", err, s.asked)
	}
	s.dir("", 0o750, 0)
	if err := r.Refused(t.Context(), somebody, "a"); !errors.Is(err, iofs.ErrPermission) {
		t.Error(err)
	}
}
