package ls

import (
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
)

func TestTimesAreShort(t *testing.T) {
	for seconds, want := range map[float64]string{0.4: "0s", 59.9: "59s", 60: "1m", 61: "1m1s", 3661: "1h1m", 90000: "1d1h", 86400: "1d"} {
		if got := short(seconds); got != want {
			t.Errorf("%g is %s, want %s", seconds, got, want)
		}
	}
}

// TestReasonsDoNotSteerTheTerminal: they name files, which users name as they like.
func TestReasonsDoNotSteerTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := write(&out, []look.Seen{{Health: look.Degraded, Reasons: []string{"1 uploads fail, such as a\x1b[2J\nb\tc"}}}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), `such as a\x1b[2J\nb\tc`+"\n") || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%q", out.String())
	}
}
