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
