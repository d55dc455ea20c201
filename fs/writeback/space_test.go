package writeback

import (
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func inodeOf(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// compareStates tells what differs of all that survives.
func compareStates(a, b *state) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(state{}),
		cmpopts.IgnoreFields(state{}, "queue", "recent", "tally", "ordered", "displaced", "displacing", "preceded", "lastLoss", "mended", "dropped", "renewed", "named", "left", "after", "unkept", "NextFile"))
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
