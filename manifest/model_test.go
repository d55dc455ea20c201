package manifest

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/oss"
)

// model is what a bucket should look like, worked out from all its keys at once.
type model struct {
	// dirs holds, by path, what each directory shows, by name.
	dirs map[string]map[string]Entry
	// mounted is the prefix that is shown.
	mounted string
	// reported are keys that are not shown under their own name.
	reported map[string]bool
}

func modelOf(b *fakeBucket, mounted string) *model {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &model{mounted: mounted, dirs: map[string]map[string]Entry{}, reported: map[string]bool{}}
	m.add(b, "", mounted)
	return m
}

func (m *model) add(b *fakeBucket, dir, prefix string) {
	shown := map[string]Entry{}
	m.dirs[dir] = shown
	isDir := map[string]bool{}
	for _, key := range b.mu.keys {
		item, ok := strings.CutPrefix(key, prefix)
		component, _, folded := strings.Cut(item, "/")
		if !ok || !folded || isDir[component] {
			continue
		}
		full := prefix + component + "/"
		name := nameOf(component, false)
		if full == ownPrefix || full == m.mounted+ownPrefix {
			continue
		}
		if name != component {
			m.reported[full] = true
		}
		if len(full) > maxKey || len(name) > maxName {
			m.reported[full] = true
			continue
		}
		isDir[component] = true
		shown[name] = Entry{Name: name, Kind: Directory, Object: oss.Object{Key: full}}
		m.add(b, path.Join(dir, name), full)
	}
	for _, key := range b.mu.keys {
		component, ok := strings.CutPrefix(key, prefix)
		o := b.mu.objects[key]
		if !ok || strings.Contains(component, "/") || (component == "" && o.Size == 0 && !o.Symlink) {
			continue
		}
		name := nameOf(component, isDir[component])
		if name != component || len(key) > maxKey {
			m.reported[key] = true
		}
		if len(key) > maxKey || len(name) > maxName || len(nameOf(component, false)) > maxName {
			m.reported[key] = true
			continue
		}
		kind := File
		if o.Symlink {
			kind = Symlink
		}
		shown[name] = Entry{Name: name, Kind: kind, Object: o.Object}
	}
}

// drawKeys draws a set of keys that collide in every way.
func drawKeys(t *rapid.T) []string {
	keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(component(), 1, 4).Draw(t, "components")
		key := strings.Join(parts, "/")
		switch rapid.IntRange(0, 9).Draw(t, "own") {
		case 0:
			key = ownPrefix + key
		case 1:
			key = "a/" + ownPrefix + key
		}
		return key
	}), 0, 25).Draw(t, "keys")
	// And their neighbours: directories, markers, objects beside directories.
	for _, key := range slices.Clone(keys) {
		switch rapid.IntRange(0, 5).Draw(t, "neighbour") {
		case 0:
			keys = append(keys, key+"/")
		case 1:
			keys = append(keys, key+"/"+rapid.SampledFrom([]string{"a", "b/c", "/", "/a"}).Draw(t, "below"))
		case 2:
			keys = append(keys, key+rapid.SampledFrom([]string{"-", ".x", " ", "!a", "0"}).Draw(t, "suffix"))
		case 3:
			if i := strings.LastIndexByte(key, '/'); i > 0 {
				keys = append(keys, key[:i])
			}
		}
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// drawBucket draws a store with its own habits, holding drawKeys.
func drawBucket(t *rapid.T) *fakeBucket {
	b := newFakeBucket()
	for _, key := range drawKeys(t) {
		switch rapid.IntRange(0, 3).Draw(t, "object") {
		case 0:
			b.put(key, 0)
		case 1:
			b.symlink(key, "x")
		default:
			b.put(key, int64(len(key)))
		}
	}
	b.pageKeys = rapid.SampledFrom([]int{0, 1, 2, 3, 7}).Draw(t, "page")
	b.foldsFirst = rapid.Bool().Draw(t, "foldsFirst")
	b.repeatsPrefix = rapid.Bool().Draw(t, "repeatsPrefix")
	b.emptyPages = rapid.Bool().Draw(t, "emptyPages")
	return b
}

func drawConfig(t *rapid.T) LiveConfig {
	return LiveConfig{
		Prefix:   rapid.SampledFrom([]string{"", "", "a/", "a//", "./"}).Draw(t, "prefix"),
		MaxBytes: rapid.SampledFrom([]int64{1, 3000, 0}).Draw(t, "memory"),
		TTL:      rapid.SampledFrom([]time.Duration{1, time.Hour}).Draw(t, "ttl"),
	}
}

// withoutCursor returns e as a lookup gives it.
func withoutCursor(e Entry) Entry {
	e.Cursor = ""
	return e
}

// Whatever the keys are and however the store pages them, the tree is what the
// keys say, by reading directories and by looking up, in any order, with any
// memory.
func TestTreeIsWhatTheKeysSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, cfg := drawBucket(rt), drawConfig(rt)
		l := newTestLive(t, cfg, b)
		defer l.Close()
		want := modelOf(b, cfg.Prefix)
		var dirs []string
		for dir := range want.dirs {
			dirs = append(dirs, dir)
		}
		slices.Sort(dirs)
		read := map[string]bool{}
		ctx := context.Background()
		rt.Repeat(map[string]func(*rapid.T){
			"readdir": func(rt *rapid.T) {
				dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
				entries, err := tryReadAll(l, dir, rapid.IntRange(1, 5).Draw(rt, "limit"))
				if err != nil {
					rt.Fatalf("read %q: %v", dir, err)
				}
				got := map[string]Entry{}
				for _, e := range entries {
					if _, twice := got[e.Name]; twice {
						rt.Fatalf("%q shows %q twice", dir, e.Name)
					}
					got[e.Name] = withoutCursor(e)
				}
				if diff := cmp.Diff(want.dirs[dir], got); diff != "" {
					rt.Fatalf("%q: %s", dir, diff)
				}
				read[dir] = true
			},
			"lookup": func(rt *rapid.T) {
				dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
				var candidates []string
				for name := range want.dirs[dir] {
					candidates = append(candidates, name)
				}
				slices.Sort(candidates)
				candidates = append(candidates, "a", "absent", "%~", "%~file", "a%~file", ".pailfs", "zz")
				name := rapid.SampledFrom(candidates).Draw(rt, "name")
				got, _, err := l.Lookup(ctx, dir, name)
				w, ok := want.dirs[dir][name]
				if ok != (err == nil) || (err != nil && !errors.Is(err, fs.ErrNotExist)) || got != w {
					rt.Fatalf("lookup %q in %q: %+v, %v, want %+v", name, dir, got, err, w)
				}
			},
			"no such directory": func(rt *rapid.T) {
				dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
				below := path.Join(dir, rapid.SampledFrom([]string{"absent", ".pailfs", "a%~file", "%~", "a"}).Draw(rt, "name"))
				entries, _, err := l.ReadDir(ctx, below, "", 10)
				if w, ok := want.dirs[below]; ok != (err == nil) || (!ok && !errors.Is(err, fs.ErrNotExist)) || len(entries) > len(w) {
					rt.Fatalf("read %q: %v, %v", below, names(entries), err)
				}
			},
			"forget": func(rt *rapid.T) {
				l.Forget(rapid.SampledFrom(dirs).Draw(rt, "dir"), rapid.SampledFrom([]string{"a", "ab", "%~", "a-", "b"}).Draw(rt, "name"))
			},
		})
		if b.mu.heads > 0 {
			rt.Fatalf("%d HEADs were sent", b.mu.heads)
		}
		assertAccounts(rt, l)
		for _, dir := range dirs {
			if _, err := tryReadAll(l, dir, 3); err != nil {
				rt.Fatal(err)
			}
		}
		for key := range want.reported {
			if !l.problems.has(key) {
				rt.Fatalf("key %q is not reported", key)
			}
		}
		if got := l.Problems().Count; got != int64(len(want.reported)) {
			rt.Fatalf("%d keys are reported, want %d: %v", got, len(want.reported), want.reported)
		}
		assertEveryKeyIsAccountedFor(rt, b, cfg.Prefix, want, l)
	})
}

// Each key is shown under exactly one path that resolves to it, or is a marker of
// a directory that is shown, or it or a directory above it is reported, or it is
// pailfs's own.
func assertEveryKeyIsAccountedFor(t *rapid.T, b *fakeBucket, mounted string, m *model, l *Live) {
	objects, directories := map[string]int{}, map[string]int{}
	for dir, shown := range m.dirs {
		for name := range shown {
			e, _, err := l.Lookup(context.Background(), dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == Directory {
				directories[e.Object.Key]++
			} else {
				objects[e.Object.Key]++
			}
		}
	}
	for _, key := range b.mu.keys {
		rest, ok := strings.CutPrefix(key, mounted)
		if !ok || rest == "" || isOwn(key, mounted) {
			continue
		}
		reported := l.problems.has(key)
		for i, c := range rest {
			reported = reported || (c == '/' && l.problems.has(mounted+rest[:i+1]))
		}
		paths := objects[key]
		if o := b.mu.objects[key]; strings.HasSuffix(key, "/") && o.Size == 0 && !o.Symlink {
			paths = directories[key]
		}
		if paths > 1 || (paths == 0 && !reported) {
			t.Fatalf("key %q is shown under %d paths, reported: %v", key, paths, reported)
		}
	}
}

// assertAccounts compares what Live believes it holds with what it holds.
func assertAccounts(t interface{ Fatalf(string, ...any) }, l *Live) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var bytes, entries int64
	for prefix, d := range l.mu.directories {
		bytes += d.bytes()
		entries += d.entries()
		at := ""
		for i, r := range d.runs {
			if r.lo < at || (r.toEnd && i < len(d.runs)-1) || (!r.toEnd && r.hi <= r.lo) {
				t.Fatalf("%q: run %d from %q to %q, after one to %q", prefix, i, r.lo, r.hi, at)
			}
			for j := range r.len() {
				if item := r.item(j); !r.covers(item) || (j > 0 && item <= r.item(j-1)) {
					t.Fatalf("%q: run %d from %q to %q holds %q", prefix, i, r.lo, r.hi, item)
				}
			}
			at = r.hi
		}
		if len(d.runs)+len(d.flights) == 0 {
			t.Fatalf("%q is held for nothing", prefix)
		}
	}
	if bytes != l.mu.bytes || entries != l.mu.entries {
		t.Fatalf("accounts say %d bytes and %d entries, held are %d and %d", l.mu.bytes, l.mu.entries, bytes, entries)
	}
}

// While keys come and go, one pass through a directory shows no name twice and
// every name that stays.
func TestPassThroughAChangingDirectory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, cfg := drawBucket(rt), drawConfig(rt)
		cfg.Prefix = ""
		l := newTestLive(t, cfg, b)
		defer l.Close()
		always := modelOf(b, "").dirs[""]
		touch := func() {
			kind := rapid.IntRange(0, 3).Draw(rt, "change")
			key := rapid.SampledFrom([]string{"a", "a/x", "a-", "a-/x", "ab", "a.", "a./", "b", "zz"}).Draw(rt, "key")
			if kind == 0 {
				b.remove(key)
			} else {
				b.put(key, 1)
			}
			now := modelOf(b, "").dirs[""]
			for name, e := range always {
				if now[name].Kind != e.Kind || now[name].Object.Key != e.Object.Key {
					delete(always, name)
				}
			}
		}
		seen := map[string]bool{}
		cursor := ""
		for {
			entries, _, err := l.ReadDir(context.Background(), "", cursor, rapid.IntRange(1, 4).Draw(rt, "limit"))
			if err != nil {
				rt.Fatal(err)
			}
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				if seen[e.Name] {
					rt.Fatalf("%q comes twice", e.Name)
				}
				seen[e.Name] = true
			}
			cursor = entries[len(entries)-1].Cursor
			if rapid.Bool().Draw(rt, "touch") {
				touch()
			}
			if rapid.IntRange(0, 3).Draw(rt, "forget") == 0 {
				l.Forget("", rapid.SampledFrom([]string{"a", "a-", "a.", "b"}).Draw(rt, "name"))
			}
		}
		for name := range always {
			if !seen[name] {
				rt.Fatalf("%q was there all the time and is not shown", name)
			}
		}
		assertAccounts(rt, l)
	})
}
