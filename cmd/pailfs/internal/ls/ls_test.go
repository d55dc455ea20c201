package ls

import (
	"testing"
)

func TestTimesAreShort(t *testing.T) {
	for seconds, want := range map[float64]string{0.4: "0s", 59.9: "59s", 60: "1m", 61: "1m1s", 3661: "1h1m", 90000: "1d1h", 86400: "1d"} {
		if got := short(seconds); got != want {
			t.Errorf("%g is %s, want %s", seconds, got, want)
		}
	}
}
