package manifest

import (
	"testing"
	"time"
)

// TestNanosecondsOfMetadata: they count where they belong to the seconds beside them.
func TestNanosecondsOfMetadata(t *testing.T) {
	for _, c := range []struct {
		seconds, nanos string
		want           time.Time
		known          bool
	}{
		{"1000000000", "1000000000.000000005", time.Unix(1e9, 5), true},
		{"1000000000", "1000000000.5", time.Unix(1e9, 5e8), true},
		{"1000000000", "1000000001.000000005", time.Unix(1e9, 0), true},
		{"1000000000", "nonsense", time.Unix(1e9, 0), true},
		{"1000000000", "", time.Unix(1e9, 0), true},
		{"1000000000.25", "1000000000.000000005", time.Unix(1e9, 25e7), true},
		{"-5", "-5.999999999", time.Unix(-5, 999999999), true},
		{"", "1000000000.000000005", time.Time{}, false},
	} {
		meta := map[string]string{"color": "red"}
		if c.seconds != "" {
			meta["mtime"] = c.seconds
		}
		if c.nanos != "" {
			meta[MetaMtime] = c.nanos
		}
		a := AttrOf(meta)
		if known := a.Known&AttrMTime != 0; known != c.known || known && !a.MTime.Equal(c.want) {
			t.Errorf("%q and %q are %v, %t, want %v, %t", c.seconds, c.nanos, a.MTime, known, c.want, c.known)
		}
		if len(a.User) != 1 || a.User[0].Name != "color" {
			t.Errorf("what else the metadata says is %v", a.User)
		}
	}
}
