package mountpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestAHungMountIsStuckAndHoldsNobody: this process has no thread that waits for it, so it ends.
func TestAHungMountIsStuckAndHoldsNobody(t *testing.T) {
	at := mounttest.Hung(t, Type, "oss://hung")
	if state, err := Probe(at, 200*time.Millisecond); state != Stuck || err != nil {
		t.Errorf("state %d, %v", state, err)
	}
	if got, err := Resolve(at); got != at || err != nil {
		t.Errorf("it resolves to %q, %v", got, err)
	}
	var seen sight
	if err := ask(verbResolve, filepath.Join(at, "dir"), 200*time.Millisecond, &seen); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("below it: %v", err)
	}
}

// TestNamesOfAnyBytesComeBack: a path need not be text.
func TestNamesOfAnyBytesComeBack(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "a\xff\"\nb")
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Resolve(name + "/."); got != name || err != nil {
		t.Errorf("it resolves to %q, %v", got, err)
	}
	if _, err := Resolve(name + "\xfe/x"); !Missing(err) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("of nothing: %v", err)
	}
}
