package fs

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
)

// mute knows no attributes and counts what it is asked.
type mute struct {
	*counted
	asked, calls atomic.Int64
	during       atomic.Pointer[func()]
}

func (m *mute) Complete(_ context.Context, _ string, entries []manifest.Entry) {
	m.asked.Add(int64(len(entries)))
	m.calls.Add(1)
	if during := m.during.Swap(nil); during != nil {
		(*during)()
	}
}

func mountMute(t *testing.T, dirs, files int) (*written, *mute) {
	t.Helper()
	e := startStore(t)
	client := writtenClient(t, e, testLog(t))
	for d := range dirs {
		for i := range files {
			_, err := client.As(oss.Upload).Put(t.Context(), fmt.Sprintf("d%d/%04d", d, i), strings.NewReader("x"), oss.PutOptions{})
			must(t, err)
		}
	}
	must(t, client.Close())
	tree := &mute{counted: new(counted)}
	w := mountWritten(t, e, writtenOptions{config: Config{Attrs: true}, ttl: time.Hour, shown: func(shown *attributes.Tree) manifest.Tree {
		tree.Tree = shown
		return tree
	}})
	return w, tree
}

// renaming is a view of two directories; while attributes are asked for, one is renamed and the
// other takes its name.
type renaming struct {
	view
	names map[string][]string
	while func()
}

func (s *renaming) ReadDir(_ context.Context, dir, after string, limit int) (page []entry, _ manifest.Validity, _ error) {
	for _, name := range s.names[dir] {
		if name > after && len(page) < limit {
			page = append(page, entry{Entry: manifest.Entry{Name: name, Partial: true, Cursor: name}})
		}
	}
	return page, manifest.Validity{}, nil
}

func (s *renaming) Complete(context.Context, string, []manifest.Entry) { s.while() }

func TestListingThatWaitedTellsOfItsDirectoryWhereverItIs(t *testing.T) {
	s := &renaming{names: map[string][]string{"a": {"mine"}, "b": {"other"}}}
	d := newDirectory("a")
	s.while = func() {
		s.names = map[string][]string{"c": {"mine"}, "a": {"other"}}
		now := "c"
		d.path.Store(&now)
	}
	list, _ := d.enter(time.Now())
	r := &lister{tree: s, dir: d, list: list, position: dotEntries}
	ctx, end := context.WithCancel(t.Context())
	defer r.complete(&completing{tree: s, ctx: ctx, end: end})()
	must(t, r.fill(t.Context()))
	if len(r.pending) != 1 || r.pending[0].Name != "mine" {
		t.Errorf("the directory that was renamed lists %+v", r.pending)
	}
}

func TestListingOfARenamedDirectoryTellsItsOwnNames(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w, tree := mountMute(t, 2, 100)
	must(t, os.Mkdir(w.path("z"), 0o755))
	must(t, os.WriteFile(w.path("z/other"), []byte("y"), 0o644))
	w.drain(t)
	// The thread looks at what it lists.
	for _, name := range listed(t, w.path("d1")) {
		var st unix.Stat_t
		must(t, unix.Lstat(w.path("d1/"+name), &st))
	}
	during := func() {
		done := make(chan error)
		go func() {
			err := os.Rename(w.path("d0"), w.path("d9"))
			if err == nil {
				err = os.Rename(w.path("z"), w.path("d0"))
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Log("the kernel holds the rename")
		}
	}
	tree.during.Store(&during)
	got := listed(t, w.path("d0"))
	if tree.during.Load() != nil {
		t.Error("nothing was asked for")
	}
	if len(got) != 100 || slices.Contains(got, "other") {
		t.Errorf("%d names: %v", len(got), got)
	}
}
