package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// meter shows on a terminal how far something is, and nothing elsewhere. It belongs
// to one goroutine.
type meter struct {
	p program
	// bar is nil where nobody looks.
	bar   *progressbar.ProgressBar
	total int64
}

// newMeter returns a meter that has shown nothing yet.
func (p program) newMeter() *meter { return &meter{p: p} }

// show says what is being done, and how much of total; a total of 0 is not known.
func (m *meter) show(doing string, done, total int64) {
	if !m.p.atTerminal() {
		return
	}
	if total <= 0 {
		total = -1
	}
	if m.bar == nil || m.total != total {
		m.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(m.p.stderr), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(total > 0), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionShowElapsedTimeOnFinish())
		m.total = total
	}
	m.bar.Describe(doing)
	_ = m.bar.Set64(min(done, max(total, done))) // to the terminal
}

// clear takes the bar away.
func (m *meter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear() // to the terminal
		m.bar = nil
	}
}

// watch calls show until stop is called, which also clears the meter.
func (m *meter) watch(show func(m *meter)) (stop func()) {
	if !m.p.atTerminal() {
		return func() {}
	}
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ending:
				m.clear()
				return
			case <-tick.C:
				show(m)
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}
