package attrs

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

// What is written into metadata is read back as it was, and what others have there stays.
func TestMetadataReadsBackAsItWasWritten(t *testing.T) {
	const whole, exact = int64(1_700_000_000_000_000_000), int64(1_700_000_000_123_456_789)
	for _, mtime := range []int64{whole, exact} {
		for _, a := range []Attrs{{Mtime: mtime}, {Mode: 0o640, UID: 7, GID: 1<<32 - 1, Mtime: mtime, Set: true}} {
			theirs := map[string]string{"color": "red", "mtime": "1", metaNanos: "1.000000001"}
			for what, meta := range map[string]map[string]string{"file": a.Meta(theirs, false, mtime), "directory": a.DirMeta(theirs)} {
				t.Run(fmt.Sprint(what, a), func(t *testing.T) {
					if got := Parse(meta); got != a {
						t.Errorf("%q is %+v, want %+v", meta, got, a)
					}
					if meta["color"] != "red" || IsLink(meta) {
						t.Errorf("it became %q", meta)
					}
					if DropMtime(meta); Parse(meta).Mtime != 0 {
						t.Errorf("without its time it is %q", meta)
					}
				})
			}
			if !maps.Equal(theirs, map[string]string{"color": "red", "mtime": "1", metaNanos: "1.000000001"}) {
				t.Errorf("what the object had became %q", theirs)
			}
			if known := Of(a.Known()); known != a {
				t.Errorf("the base tree would tell %+v, want %+v", known, a)
			}
		}
	}
	if meta := (Attrs{}).Meta(nil, true, time.Now().UnixNano()); !IsLink(meta) {
		t.Errorf("a symlink has %q", meta)
	}
	if (Attrs{}).Known() != nil {
		t.Error("the base tree would tell nothing")
	}
}
