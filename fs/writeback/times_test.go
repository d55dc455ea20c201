package writeback

import (
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// TestTimesAreNotThoseOfTheSameBytesPutThereLater: the tag of such an object is the same.
func TestTimesAreNotThoseOfTheSameBytesPutThereLater(t *testing.T) {
	var told toldTimes
	modified := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	object := oss.NewObject("p/a", "abc", 3, modified)
	want := Times{Mtime: modified.UnixNano() + 5, Ctime: modified.UnixNano() + 7}
	told.put(object, want)
	listed := oss.NewObject("p/a", "abc", 3, modified.Add(2*time.Second))
	if got, ok := told.get(listed); !ok || got != want {
		t.Errorf("of the object as it is listed %v, %v are told, want %v", got, ok, want)
	}
	later := oss.NewObject("p/a", "abc", 3, modified.Add(time.Hour))
	if got, ok := told.get(later); ok {
		t.Errorf("of an object that came later %v are told", got)
	}
}
