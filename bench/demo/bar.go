package demo

import (
	"github.com/schollz/progressbar/v3"
)

// bar shows progress on a terminal, and nothing elsewhere.
type bar struct{ shown *progressbar.ProgressBar }

func (c *Config) newBar(total int64) bar {
	if !c.Progress {
		return bar{}
	}
	return bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(c.Stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(40), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription("  loading"), progressbar.OptionThrottle(100_000_000))}
}

func (b bar) add(n int64) {
	if b.shown != nil {
		_ = b.shown.Add64(n) // it fails only beyond its total
	}
}

func (b bar) done() {
	if b.shown != nil {
		_ = b.shown.Finish() // to the terminal
	}
}
