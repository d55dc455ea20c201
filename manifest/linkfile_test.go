package manifest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// linkContent answers with the content of links.
type linkContent map[string]string

var _ LinkSource = linkContent(nil)

func (c linkContent) ReadRange(_ context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	if n := copy(r.Buffer, c[r.Object.Key]); n != len(r.Buffer) || n != len(c[r.Object.Key]) {
		return oss.RangeResult{}, fmt.Errorf("asked for %d bytes of %q", len(r.Buffer), c[r.Object.Key])
	}
	return oss.RangeResult{}, nil
}

func (c linkContent) SymlinkTarget(context.Context, string) (string, error) {
	return "", errors.New("it is no symlink object")
}

// TestLinksOfOssfsInAManifestAreLinks, whichever way somebody comes to them: a manifest that is
// frozen has nobody above it who would tell them from files.
func TestLinksOfOssfsInAManifestAreLinks(t *testing.T) {
	when := time.Unix(1_700_000_000, 0).UTC()
	attr := &Attr{Known: AttrMode, Mode: 0o120777}
	content := linkContent{"bin/python": "../lib/python3", "bin/large": strings.Repeat("x", 5000)}
	records := []Record{{Key: "bin/file", ETag: "E0", Size: 3, ModTime: when, Attr: &Attr{Known: AttrMode, Mode: 0o755}}}
	for key, text := range content {
		records = append(records, Record{Key: key, ETag: "E1", Size: int64(len(text)), ModTime: when, Attr: attr})
	}
	s := snapshotOf(t, "", SnapshotConfig{Links: content}, records)
	defer s.Close()
	looked, _, err := s.Lookup(t.Context(), "bin", "python")
	if err != nil {
		t.Fatal(err)
	}
	bare := looked
	bare.Attr = nil // as the file system asks later
	for _, e := range []Entry{looked, bare} {
		if target, err := s.ReadLink(t.Context(), e); err != nil || target != "../lib/python3" {
			t.Errorf("%+v leads to %q, %v", e, target, err)
		}
	}
	limit := func() int { return 2 }
	for way, entries := range map[string][]Entry{
		"a listing": readTree(t, s, "bin", 10), "names": readTree(t, namesOnly{s}, "bin", 10),
		"positions": readAt(t, s, "bin", false, limit), "positions of names": readAt(t, s, "bin", true, limit),
		"a lookup": {looked},
	} {
		for _, e := range entries {
			want := File // what is longer than a path can be is no link
			if e.Name == "python" {
				want = Symlink
			}
			if e.Kind != want {
				t.Errorf("%s: %s is of kind %d, want %d", way, e.Name, e.Kind, want)
			}
		}
	}
}

// TestNamesCostNoAttributes that could not make a link of a file: `ls` of a manifest with
// attributes reads little more than the names.
func TestNamesCostNoAttributes(t *testing.T) {
	parts := func(size int64, attrs, symlink, namesOnly bool) int64 {
		records := make([]Record, 3000)
		for i := range records {
			records[i] = Record{Key: fmt.Sprintf("f%06d", i), ETag: "E", Size: size, ModTime: time.Unix(1_700_000_000, 0).UTC()}
			if attrs {
				records[i].Attr = &Attr{Known: AttrMode, Mode: 0o644}
			}
		}
		if symlink {
			records = append(records, Record{Key: "g", ETag: "E", Symlink: true, Attr: &Attr{Known: AttrTarget, Target: "f000000"}})
		}
		s := snapshotOf(t, "", SnapshotConfig{}, records)
		defer s.Close()
		if all := readAt(t, s, "", namesOnly, func() int { return 5000 }); len(all) != len(records) {
			t.Fatalf("%d names of %d", len(all), len(records))
		}
		_, read := s.file.Held()
		return read
	}
	none := parts(100, false, false, true)
	if all := parts(100, false, false, false); none >= all {
		t.Errorf("names cost %d parts, all that is known of them %d", none, all)
	}
	if one := parts(100, false, true, true); one != none {
		t.Errorf("names beside a symlink cost %d parts, want %d", one, none)
	}
	// Their sizes tell that they are no links.
	if large, all := parts(10_000, true, false, true), parts(10_000, true, false, false); large >= all {
		t.Errorf("names of large files cost %d parts, all that is known of them %d", large, all)
	}
}
