package wire

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/writeback"
)

func TestTheLastWordIsReadByWhoKnowsTheProcess(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadEnding(dir, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where nothing was left: %v", err)
	}
	left := Ending{PID: 7, Left: 3, Paths: []writeback.PendingEntry{{Path: "a", State: "failing", Error: "denied"}, {Path: "b", State: "waiting"}}}
	if err := left.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadEnding(dir, 7)
	if diff := cmp.Diff(left, got); err != nil || diff != "" {
		t.Errorf("%v, (-left +read):\n%s", err, diff)
	}
	if _, err := ReadEnding(dir, 8); err == nil || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("of another process: %v", err)
	}
	want := "3 changes are not in the object store and stay in cache-dir for the next mount: a (failing: denied), b (waiting) and 1 more"
	if err := left.Err(); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
	if err := (Ending{PID: 7}).Err(); err != nil {
		t.Errorf("where nothing is left it says %v", err)
	}
}
