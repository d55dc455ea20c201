package manifest

import (
	"strings"
	"testing"
)

func TestObjectKeyIsTheInverseOfNames(t *testing.T) {
	for _, c := range []struct{ mounted, dir, name, key string }{
		{"", "", "a", "a"},
		{"p/", "d/e", "a", "p/d/e/a"},
		{"p/", "", "a%~file", "p/a"},
		{"", "a/%~", "..%~", "a//.."},
		{"p/", "", "%~", "p/"},
	} {
		if key, ok := ObjectKey(c.mounted, c.dir, c.name); !ok || key != c.key {
			t.Errorf("%+v: %q, %v", c, key, ok)
		}
	}
	for _, c := range []struct{ dir, name string }{
		{"", ".."}, {"", "a/b"}, {"", "%41%~"}, {"a%~file", "b"}, {"", strings.Repeat("x", 256)}, {".pailfs", "manifests"},
	} {
		if key, ok := ObjectKey("", c.dir, c.name); ok {
			t.Errorf("%q in %q is %q", c.name, c.dir, key)
		}
	}
}

func TestTotalsCountWhatIsShown(t *testing.T) {
	s := snapshotOf(t, "", SnapshotConfig{Prefix: "a/"}, []Record{{Key: "a/"}, {Key: "a/b", Size: 10}, {Key: "a/c/d", Size: 5}, {Key: "f", Size: 100}})
	defer s.Close()
	if files, bytes := s.Totals(); files != 2 || bytes != 15 {
		t.Errorf("%d files of %d bytes", files, bytes)
	}
}
