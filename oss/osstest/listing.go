package osstest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss"
)

var listTests = map[string]func(*fixture){
	"OfNothingIsEmpty": func(f *fixture) {
		page, err := f.bucket.List(context.Background(), oss.ListRequest{Prefix: f.key("nothing/")})
		if err != nil {
			f.Fatal(err)
		}
		if len(page.Objects) != 0 || len(page.Prefixes) != 0 || page.Next != "" {
			f.Fatalf("listing is %+v, want nothing", page)
		}
	},
	"IsInByteOrder": func(f *fixture) {
		for _, name := range []string{"b", "a/z", "a", "a-", "a0", "Z", "ä", "a/", "~", "\U0001F4A7", "\uff5e"} {
			f.put(name, nil)
		}
		keys := f.keys(oss.ListRequest{Prefix: f.prefix})
		if !slices.IsSorted(keys) || len(keys) != 11 {
			f.Fatalf("listed %q, want 11 keys in byte order", keys)
		}
	},
	"ShowsAwkwardKeysAsTheyAre": func(f *fixture) {
		want := slices.Clone(awkwardNames)
		slices.Sort(want)
		for _, name := range want {
			f.put(name, nil)
		}
		if diff := cmp.Diff(want, f.names(f.keys(oss.ListRequest{Prefix: f.prefix}))); diff != "" {
			f.Fatalf("listed names differ (-want +got):\n%s", diff)
		}
	},
	"PagesThroughAwkwardKeysOneByOne": func(f *fixture) {
		want := slices.Clone(awkwardNames)
		slices.Sort(want)
		for _, name := range want {
			f.put(name, nil)
		}
		if diff := cmp.Diff(want, f.names(f.keys(oss.ListRequest{Prefix: f.prefix, MaxKeys: 1}))); diff != "" {
			f.Fatalf("listed names differ (-want +got):\n%s", diff)
		}
	},
	"BeginsAfterStartAfter": func(f *fixture) {
		want := slices.Clone(awkwardNames)
		slices.Sort(want)
		for _, name := range want {
			f.put(name, nil)
		}
		for i, name := range want {
			got := f.names(f.keys(oss.ListRequest{Prefix: f.prefix, StartAfter: f.key(name)}))
			if !slices.Equal(got, want[i+1:]) {
				f.Fatalf("after %q come %q, want %q", name, got, want[i+1:])
			}
		}
		// A key that does not exist is a place, too.
		got := f.names(f.keys(oss.ListRequest{Prefix: f.prefix, StartAfter: f.key("dir/\x00")}))
		if want := want[slices.IndexFunc(want, func(n string) bool { return n > "dir/\x00" }):]; !slices.Equal(got, want) {
			f.Fatalf("after a missing key come %q, want %q", got, want)
		}
	},
	"IgnoresStartAfterWithAToken": func(f *fixture) {
		for _, name := range []string{"a", "b", "c"} {
			f.put(name, nil)
		}
		page, err := f.bucket.List(context.Background(), oss.ListRequest{Prefix: f.prefix, MaxKeys: 1})
		if err != nil {
			f.Fatal(err)
		}
		got := f.names(f.keys(oss.ListRequest{Prefix: f.prefix, Token: page.Next, StartAfter: f.key("zzz")}))
		if !slices.Equal(got, []string{"b", "c"}) {
			f.Fatalf("listed %q, want b and c", got)
		}
	},
	"FoldsAtTheDelimiter": func(f *fixture) {
		for _, name := range []string{"a", "a/", "a/x", "a/y", "b/z/w", "c", "//", "d//e"} {
			f.put(name, nil)
		}
		page := f.listAll(oss.ListRequest{Prefix: f.prefix, Delimiter: "/"})
		var objects []string
		for _, o := range page.Objects {
			objects = append(objects, strings.TrimPrefix(o.Key, f.prefix))
		}
		if want := []string{"a", "c"}; !slices.Equal(objects, want) {
			f.Errorf("objects are %q, want %q", objects, want)
		}
		if got, want := f.names(page.Prefixes), []string{"/", "a/", "b/", "d/"}; !slices.Equal(got, want) {
			f.Errorf("prefixes are %q, want %q", got, want)
		}
		// The marker of a directory is an object of its own listing.
		page = f.listAll(oss.ListRequest{Prefix: f.key("a/"), Delimiter: "/"})
		if len(page.Objects) != 3 || page.Objects[0].Key != f.key("a/") || len(page.Prefixes) != 0 {
			f.Errorf("listing of a/ is %+v, want a/, a/x and a/y", page)
		}
	},
	"CountsPrefixesAsKeys": func(f *fixture) {
		for i := range 6 {
			f.put(fmt.Sprintf("%d-dir/x", i), nil)
			f.put(fmt.Sprintf("%d-dir/y", i), nil)
			f.put(fmt.Sprintf("%d-file", i), nil)
		}
		var objects, prefixes []string
		r := oss.ListRequest{Prefix: f.prefix, Delimiter: "/", MaxKeys: 5}
		for {
			page, err := f.bucket.List(context.Background(), r)
			if err != nil {
				f.Fatal(err)
			}
			if n := len(page.Objects) + len(page.Prefixes); n > 5 {
				f.Fatalf("a page of 5 has %d entries", n)
			}
			for _, o := range page.Objects {
				objects = append(objects, o.Key)
			}
			prefixes = append(prefixes, page.Prefixes...)
			if r.Token = page.Next; r.Token == "" {
				break
			}
		}
		if len(objects) != 6 || len(prefixes) != 6 || !slices.IsSorted(objects) || !slices.IsSorted(prefixes) {
			f.Fatalf("pages add up to %q and %q, want 6 objects and 6 prefixes, each once", f.names(objects), f.names(prefixes))
		}
	},
	"TakesAPrefixThatIsNoDirectory": func(f *fixture) {
		for _, name := range []string{"pre", "prefix", "pre/x", "pr", "q"} {
			f.put(name, nil)
		}
		got := f.names(f.keys(oss.ListRequest{Prefix: f.key("pre")}))
		if want := []string{"pre", "pre/x", "prefix"}; !slices.Equal(got, want) {
			f.Fatalf("listed %q, want %q", got, want)
		}
	},
	"AgreesWithPutAndHead": func(f *fixture) {
		put := f.put("object", noise(1234))
		page := f.listAll(oss.ListRequest{Prefix: put.Key})
		if len(page.Objects) != 1 || page.Objects[0].Object != put || page.Objects[0].Symlink {
			f.Fatalf("listed %+v, put %+v", page.Objects, put)
		}
		head, err := f.bucket.Head(context.Background(), put.Key)
		if err != nil || head.Object != put {
			f.Fatalf("Head = %+v, %v, put %+v", head, err, put)
		}
	},
	"RefusesWhatIsNoPage": func(f *fixture) {
		for _, r := range []oss.ListRequest{{Prefix: f.prefix, MaxKeys: -1}, {Prefix: f.prefix, MaxKeys: 1001}, {Prefix: f.prefix, Delimiter: "x"}} {
			_, err := f.bucket.List(context.Background(), r)
			f.wantError(err, oss.ErrInvalid)
		}
	},
}

// keys lists all keys of r.
func (f *fixture) keys(r oss.ListRequest) []string {
	f.Helper()
	var keys []string
	for _, o := range f.listAll(r).Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// names takes the test's prefix off.
func (f *fixture) names(keys []string) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = strings.TrimPrefix(key, f.prefix)
	}
	return names
}
