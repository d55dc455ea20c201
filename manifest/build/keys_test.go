package build

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// fromKeys is the configuration of a build from a list.
func fromKeys(t *testing.T, b Bucket, list string) Config {
	cfg := config(t, b)
	cfg.Source = Keys{Name: "list", Lines: strings.NewReader(list), Bucket: ossemutest.Bucket}
	return cfg
}

func TestKeysOfAListAreAskedFor(t *testing.T) {
	e, b := store(t)
	keys := numbered("d/%04d", 700)
	fill(t, e, append(keys, "d/not listed", ".pailfs/x"))
	list := ".pailfs/x\n\noss://" + ossemutest.Bucket + "/" + strings.Join(keys, "\r\n")
	got, _ := mustBuild(t, fromKeys(t, b, list))
	want := inBucket(t, b, "d/")[:700]
	for i := range want {
		info, err := b.Head(t.Context(), want[i].Key)
		if err != nil {
			t.Fatal(err)
		}
		want[i].CRC64, want[i].HasCRC64 = info.CRC64, info.HasCRC64
	}
	same(t, want, got)
	if n := e.Requests("ListObjectsV2"); n != 1 {
		t.Errorf("%d listings, of which the test made one", n)
	}
	cfg := config(t, b)
	cfg.Source = Keys{Name: "list", Lines: strings.NewReader("d/0001\x00d/0002"), Null: true}
	if got, _ := mustBuild(t, cfg); len(got) != 2 {
		t.Errorf("with NULs: %q", keysOf(got))
	}
}

func TestListsThatAreWrongAreRefused(t *testing.T) {
	e, b := store(t)
	fill(t, e, []string{"a", "b", "p/c"})
	for list, want := range map[string]string{
		"a\nmissing\nb\n":                           `1 of the listed keys do not exist, such as "missing"`,
		"a\n/b\n":                                   "line 2 of list: \"/b\" begins with a slash",
		"oss://other/a\n":                           "another bucket",
		"a\n" + strings.Repeat("x", 2000) + "\n":    "2000 bytes",
		"a\n" + strings.Repeat("x", 300<<10) + "\n": "longer than any key",
		"oss://" + ossemutest.Bucket + "\n":         "0 bytes",
	} {
		if _, err := try(t.Context(), fromKeys(t, b, list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", list, err)
		}
	}
	cfg := fromKeys(t, b, "p/c\na\n")
	cfg.Prefix = "p/"
	if _, err := try(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `not below "p/"`) {
		t.Errorf("a key outside the prefix: %v", err)
	}
	cfg = fromKeys(t, b, "a\nmissing\nb\n")
	source := cfg.Source.(Keys)
	source.AllowMissing = true
	cfg.Source = source
	got, result := mustBuild(t, cfg)
	if len(got) != 2 || result.Missing != 1 {
		t.Errorf("%q, %d missing", keysOf(got), result.Missing)
	}
}

func TestInterruptedListOfKeysGoesOn(t *testing.T) {
	e, b := store(t)
	keys := numbered("%05d", 3000)
	fill(t, e, keys)
	s := &stopAfter{Bucket: b, err: errKilled}
	cfg := config(t, s)
	attempts := 0
	for ; ; attempts++ {
		s.heads, s.lists = 700+100*attempts, 0
		cfg.Source = Keys{Name: "list", Lines: strings.NewReader(strings.Join(keys, "\n"))}
		result, err := try(t.Context(), cfg)
		if err == nil {
			if got := recordsOf(t, open(t, result.Path)); len(got) != len(keys) {
				t.Errorf("%d objects, want %d", len(got), len(keys))
			}
			break
		}
		if !errors.Is(err, errKilled) || attempts > 50 {
			t.Fatal(err)
		}
	}
	if attempts < 2 {
		t.Errorf("it was interrupted %d times only", attempts)
	}
}

func TestAListThatChangedIsNoticed(t *testing.T) {
	e, b := store(t)
	keys := numbered("%05d", 600)
	fill(t, e, keys)
	s := &stopAfter{Bucket: b, err: errKilled, heads: 300}
	cfg := config(t, s)
	cfg.Parallel = 1
	list := func(keys []string) Keys {
		return Keys{Name: "list", Lines: strings.NewReader(strings.Join(keys, "\n"))}
	}
	cfg.Source = list(keys)
	if _, err := try(t.Context(), cfg); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.unlimited = true
	cfg.Source = list(keys[1:])
	if _, err := try(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("another list: %v", err)
	}
	cfg.Restart = true
	cfg.Source = list(keys[1:])
	if got, _ := mustBuild(t, cfg); len(got) != 599 {
		t.Errorf("%d objects", len(got))
	}
}

// The link is listed, not what it leads to, and it may lead nowhere.
func TestSymlinksAreKeptAsLinks(t *testing.T) {
	e, b := store(t)
	fill(t, e, []string{"target"})
	symlink(t, e, "link", "target")
	symlink(t, e, "nowhere", "does/not/exist")
	want := inBucket(t, b, "")
	if len(want) != 3 || !want[0].Symlink || want[0].Attr.Target != "target" {
		t.Fatalf("the bucket holds %+v", want)
	}
	for name, cfg := range map[string]Config{
		"listing": config(t, b),
		"attrs":   func() Config { c := config(t, b); c.Attrs = true; return c }(),
		"keys":    fromKeys(t, b, "link\nnowhere\ntarget\n"),
	} {
		got, _ := mustBuild(t, cfg)
		for i := range got {
			if !got[i].Symlink {
				got[i].CRC64, got[i].HasCRC64 = 0, false
			}
		}
		if fmt.Sprint(keysOf(got)) != fmt.Sprint(keysOf(want)) || !recordsEqual(want, got) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
	}
}

func recordsEqual(a, b []manifest.Record) bool {
	for i := range a {
		if !a[i].Equal(&b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}
