package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// Whoever unpacks an archive makes directories and fills them at once: that asks the
// store nothing, which takes time.
func TestNewDirectoriesAreFilledWithoutARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if _, err := w.read("", "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err) // the root is known from here on
		}
		began := time.Now()
		dir := ""
		for i := range 5 {
			name := fmt.Sprint("d", i)
			if err := w.space.Mkdir(t.Context(), dir, name, SetAttr{}); err != nil {
				t.Fatal(err)
			}
			dir = order.Join(dir, name)
			for j := range 5 {
				w.write(dir, fmt.Sprint("f", j), "content")
			}
			if err := w.space.Unlink(t.Context(), dir, "f0"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.read(dir, "f0"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("f0 after its removal: %v", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v: the store was asked", took)
		}
		w.drain()
		w.stop()
	})
}

// A name that is left to the base tree again is there, however new its directory is;
// so is one that somebody else has put there, a moment later.
func TestNewDirectoriesShowWhatIsInThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.write("d", "ours", "content")
		w.store.put("p/d/theirs", "theirs")
		w.drain()
		for end := time.Now().Add(emptyFor); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if got, err := w.read("d", "ours"); got != "content" || err != nil {
				t.Fatalf("ours: %q, %v", got, err)
			}
		}
		w.space.mu.Lock()
		_, known := w.space.mu.Lookup("d", "ours")
		w.space.mu.Unlock()
		if known {
			t.Error("the name was not left to the base tree: that is not the case to be tested")
		}
		if got, err := w.read("d", "theirs"); got != "theirs" || err != nil {
			t.Errorf("theirs: %q, %v", got, err)
		}
		w.stop()
	})
}
