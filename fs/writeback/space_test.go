package writeback

import (
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

func inodeOf(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// compareStates tells what differs of all that survives.
func compareStates(a, b *state.State) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(state.State{}),
		cmpopts.IgnoreFields(state.State{}, "Queue", "recent", "Tally", "Ordered", "Displaced", "displacing", "preceded", "LastLoss", "mended", "Dropped", "Renewed", "Named", "Left", "after", "Unkept", "NextFile"))
}

func TestClosedFileReachesTheBucket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "hello")
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.write("d", "b", "there")
		w.drain()
		want := map[string]string{"p/a": "hello", "p/d/": "", "p/d/b": "there"}
		if diff := cmp.Diff(want, w.inBucket()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
		if got, err := w.read("d", "b"); got != "there" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		w.stop()
	})
}
