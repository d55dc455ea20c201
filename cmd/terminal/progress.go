package terminal

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	// barWidth is how many characters a bar has.
	barWidth = 30
	// redrawn is how often a bar is drawn at most, and watched how often [Progress.Watch] looks.
	redrawn = 100 * time.Millisecond
	watched = 200 * time.Millisecond
)

// Progress shows at a terminal how far something is, and nothing elsewhere. It belongs to one
// goroutine.
type Progress struct {
	out   io.Writer // nil where nobody looks
	bytes bool
	bar   *progressbar.ProgressBar // nil while nothing is shown
	total int64
}

// NewProgress returns one that counts things and has shown nothing yet.
func NewProgress(out io.Writer) *Progress {
	if !Is(out) {
		return &Progress{}
	}
	return &Progress{out: out}
}

// NewByteProgress returns one that counts bytes.
func NewByteProgress(out io.Writer) *Progress {
	p := NewProgress(out)
	p.bytes = true
	return p
}

// Show says what is being done, and how much of total; a total of 0 is not known.
func (p *Progress) Show(doing string, done, total int64) {
	if p.out == nil {
		return
	}
	if total <= 0 {
		total = -1
	}
	if p.bar != nil && p.total > 0 && total > 0 {
		p.bar.ChangeMax64(total)
	} else if p.bar == nil || p.total != total {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetWidth(barWidth), progressbar.OptionClearOnFinish(),
			progressbar.OptionShowBytes(p.bytes), progressbar.OptionSetPredictTime(total > 0),
			progressbar.OptionThrottle(redrawn), progressbar.OptionShowElapsedTimeOnFinish())
	}
	p.total = total
	p.bar.Describe(doing)
	_ = p.bar.Set64(min(done, max(total, done))) // to the terminal
}

// Clear takes the bar away.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear() // to the terminal
		p.bar = nil
	}
}

// Watch calls show now and then until stop is called, which also takes the bar away.
func (p *Progress) Watch(show func(*Progress)) (stop func()) {
	if p.out == nil {
		return func() {}
	}
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(watched)
		defer tick.Stop()
		for {
			select {
			case <-ending:
				p.Clear()
				return
			case <-tick.C:
				show(p)
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}
