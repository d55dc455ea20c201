package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tree makes directories and files below a directory that is looked into whatever
// stands above it. A name that ends with a slash is a directory, one with an arrow a
// link.
func tree(t *testing.T, modes map[string]os.FileMode, order ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range order {
		path := filepath.Join(root, name)
		var err error
		switch link, target, isLink := strings.Cut(name, "->"); {
		case isLink:
			err = os.Symlink(target, filepath.Join(root, link))
		case strings.HasSuffix(name, "/"):
			err = os.Mkdir(path, 0o700)
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// below walks path from root on, as if others reached it.
func below(t *testing.T, w walk, root, path string) []Exposure {
	t.Helper()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	w.top = root
	if err := w.follow(filepath.Join(root, path)); err != nil {
		t.Fatal(err)
	}
	for i := range w.found {
		w.found[i].Path = strings.TrimPrefix(w.found[i].Path, root+"/")
	}
	return w.found
}

func TestWhoCouldPutSomethingElseInPlaceIsFound(t *testing.T) {
	own, group := os.Geteuid(), os.Getegid()
	for name, row := range map[string]struct {
		modes map[string]os.FileMode
		order []string
		path  string
		as    walk
		want  string
	}{
		"all ours":              {map[string]os.FileMode{"a": 0o755}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group}, ""},
		"not there yet":         {map[string]os.FileMode{"a": 0o755}, []string{"a/"}, "a/b/file", walk{own: own, group: group}, ""},
		"open directory":        {map[string]os.FileMode{"a": 0o777}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group}, "a can be written by everybody (mode 0777)"},
		"sticky directory":      {map[string]os.FileMode{"a": 0o777 | os.ModeSticky}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group}, ""},
		"open file in a sticky": {map[string]os.FileMode{"a": 0o777 | os.ModeSticky, "a/file": 0o666}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group}, "a/file can be written by everybody (mode 0666)"},
		"open above":            {map[string]os.FileMode{"a": 0o777, "a/b": 0o755}, []string{"a/", "a/b/", "a/b/file"}, "a/b/file", walk{own: own, group: group}, "a can be written by everybody (mode 0777)"},
		"open, but not entered": {map[string]os.FileMode{"a": 0o700, "a/b": 0o777}, []string{"a/", "a/b/", "a/b/file"}, "a/b/file", walk{own: own, group: group}, ""},
		"our group":             {map[string]os.FileMode{"a": 0o775}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group}, ""},
		"another group":         {map[string]os.FileMode{"a": 0o775}, []string{"a/", "a/file"}, "a/file", walk{own: own, group: group + 1}, "a can be written by group"},
		"link out of the open":  {map[string]os.FileMode{"a": 0o755, "b": 0o777}, []string{"a/", "b/", "a/file", "b/link->../a/file"}, "b/link", walk{own: own, group: group}, "b can be written by everybody (mode 0777)"},
		"link into the open":    {map[string]os.FileMode{"a": 0o755, "b": 0o777}, []string{"a/", "b/", "b/file", "a/link->../b/file"}, "a/link", walk{own: own, group: group}, "b can be written by everybody (mode 0777)"},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, row.modes, row.order...)
			e, ok := Worst(below(t, row.as, root, row.path))
			if ok != (row.want != "") || ok && !strings.HasPrefix(e.String(), row.want) {
				t.Errorf("found %q, want %q", e, row.want)
			}
		})
	}
}

func TestAnotherUsersDirectoryIsFound(t *testing.T) {
	if os.Geteuid() == 0 {
		root := tree(t, map[string]os.FileMode{"a": 0o755}, "a/", "a/file")
		if err := os.Chown(filepath.Join(root, "a"), 4242, 4242); err != nil {
			t.Fatal(err)
		}
		if e, ok := Worst(below(t, walk{}, root, "a/file")); !ok || e.String() != "a belongs to user 4242" || e.Anyone {
			t.Errorf("found %q, %v", e, ok)
		}
		return
	}
	// For a user that is neither root nor us, what is ours is another's.
	root := tree(t, map[string]os.FileMode{"a": 0o755}, "a/", "a/file")
	if e, ok := Worst(below(t, walk{own: os.Geteuid() + 1}, root, "a/file")); !ok || !strings.Contains(e.String(), "belongs to user") {
		t.Errorf("found %q, %v", e, ok)
	}
}

func TestLinksThatGoRoundAreRefused(t *testing.T) {
	root := tree(t, nil, "a->b", "b->a")
	w := walk{top: root, own: os.Geteuid(), group: os.Getegid()}
	if err := w.follow(filepath.Join(root, "a")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop ends with %v", err)
	}
}
