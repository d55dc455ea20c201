package mounting

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

func TestTheLongestPatternSaysWhatIsKept(t *testing.T) {
	c := &config.Config{PolicyRead: config.Patterns{"logs/keep"}, PolicyWarm: config.Patterns{"train"}, PolicyNever: config.Patterns{"logs", "*.tmp", "train/raw"}}
	never := newPolicy(c, "p/").neverKeep()
	for key, want := range map[string]bool{
		"p/logs/a": true, "p/logs": true, "p/logsof": false, "p/logs/keep/a": false,
		"p/x/a.tmp": true, "p/x/a.tmp.gz": false, "p/train/a": false, "p/train/raw/a": true, "elsewhere/logs/a": false,
	} {
		if got := never(key); got != want {
			t.Errorf("%s is never kept: %t", key, got)
		}
	}
	if newPolicy(&config.Config{}, "").neverKeep() != nil {
		t.Error("the cache is to ask although nothing is said")
	}
}

func TestTheLongerPatternSaysWhatIsWrittenThrough(t *testing.T) {
	c := &config.Config{Write: "back", PolicyThrough: config.Patterns{"results", "*.final"}, PolicyBack: config.Patterns{"results/scratch"}}
	through := writeThrough(c)
	for name, want := range map[string]bool{"results/a": true, "results/scratch/a": false, "x/a.final": true, "x/a": false} {
		if got := through(name); got != want {
			t.Errorf("%s is written through: %t", name, got)
		}
	}
	if writeThrough(&config.Config{Write: "back"}) != nil {
		t.Error("close is to ask although nothing is said")
	}
}
