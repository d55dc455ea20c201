package manifest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// inParallel calls f with each key, eight at a time.
func inParallel(keys []string, f func(key string)) {
	next := make(chan string)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for key := range next {
				f(key)
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	g.Wait()
}

// What the model says of a bucket holds when a server pages it and the real
// client reads it, and the versions are those that a HEAD gives.
func TestTreeOverTheClientAndTheEmulator(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: e.AccessKeyID, AccessKeySecret: e.AccessKeySecret,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: e.Endpoint, Bucket: e.Bucket, Credentials: source}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	keys := []string{
		"a", "a/b", "a-", "a-/x", "a.b", "a//b", "a/./b", "a/../b", "a/", "b/", "c/", "c/d/", "%~", "x%~file", "x%~", "x", "x/y",
		"space and + and %25 & <x> \"q\"", "日本/語", "\U0001F600/x", "tab\tnew\nline", `back\slash`, ".pailfs/m", "é",
		strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("m", 300) + "/below",
		strings.Repeat("k/", 500) + "deep",
	}
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("many/name-%04d", i))
	}
	keys = append(keys, "many/name", "many/name/below", "many/namf")
	fake := newFakeBucket()
	inParallel(keys, func(key string) {
		content := key
		if strings.HasSuffix(key, "/") && key != "a/" {
			content = ""
		}
		if _, err := e.Server.Put(e.Bucket, key, strings.NewReader(content)); err != nil {
			t.Errorf("put %q: %v", key, err)
		}
	})
	bucket := client.As(oss.Demand)
	inParallel(keys, func(key string) {
		info, err := bucket.Head(t.Context(), key)
		if err != nil {
			t.Errorf("head %q: %v", key, err)
		}
		fake.mu.Lock()
		fake.store(oss.ListedObject{Object: info.Object})
		fake.mu.Unlock()
	})

	want := modelOf(fake, "")
	read := newTestLive(t, LiveConfig{}, bucket)
	looked := newTestLive(t, LiveConfig{}, bucket)
	for dir, shown := range want.dirs {
		got := map[string]Entry{}
		for _, e := range readAll(t, read, dir, 700) {
			got[e.Name] = withoutCursor(e)
		}
		if diff := cmp.Diff(shown, got); diff != "" {
			t.Errorf("%.40q: %s", dir, diff)
		}
		var names []string
		for name := range shown {
			names = append(names, name)
		}
		slices.Sort(names)
		slices.Reverse(names)
		for _, name := range names {
			if e := mustFind(t, looked, dir, name); e != shown[name] {
				t.Errorf("%.40q: %q is %+v, want %+v", dir, name, e, shown[name])
			}
		}
		mustNotFind(t, looked, dir, "absent")
	}
	if got := read.Problems().Count; got != int64(len(want.reported)) {
		t.Errorf("%d keys are reported, want %d: %v", got, len(want.reported), want.reported)
	}
}
