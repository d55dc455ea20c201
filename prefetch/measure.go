package prefetch

import (
	"cmp"
	"context"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/session"
)

// measureStep is how long somebody measures while others wait for it.
const measureStep = 10 * time.Millisecond

// Measured tells how much of one path is in the cache.
type Measured struct {
	Path string `json:"path"`
	// Files and Bytes are what the path means at present.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// FilesWarm are whole on SSD, BytesWarm there at all.
	FilesWarm int64  `json:"files_warm"`
	BytesWarm int64  `json:"bytes_warm"`
	Error     string `json:"error,omitempty"`
	// Err is what Error says.
	Err error `json:"-"`
}

// Measure counts what is on SSD of paths, files or folders, in the versions that their
// names mean now. It fetches nothing, but lists folders where no manifest is.
// What who may not read is not counted, and an error.
//
// It works in turns with what other users measure, u being whose turn it is, and leaves
// half of the processors to others.
func (p *Prefetcher) Measure(ctx context.Context, u budget.User, who session.Who, paths []string) []Measured {
	results := make([]Measured, 0, len(paths))
	if err := p.measuring.take(ctx, u); err != nil {
		return results
	}
	began, taken := time.Now(), true
	defer func() {
		if taken {
			p.measuring.give()
		}
	}()
	// pause lets others have their turn when this one has lasted long enough.
	pause := func() error {
		if !taken || time.Since(began) < measureStep {
			return ctx.Err()
		}
		err := p.measuring.yield(ctx, u, &taken)
		began = time.Now()
		return err
	}
	for _, path := range paths {
		if pause() != nil {
			break
		}
		m := Measured{Path: path}
		var unreadable error
		err := p.walk(ctx, who, path, func(_ string, f Found) error {
			if f.Err != nil {
				unreadable = cmp.Or(unreadable, f.Err)
				return pause()
			}
			o := f.Object
			m.Files++
			m.Bytes += o.Size
			if f.Staged {
				m.FilesWarm, m.BytesWarm = m.FilesWarm+1, m.BytesWarm+o.Size
				return pause()
			}
			r := p.cache.Residency(o)
			m.BytesWarm += r.SSD
			if r.Whole || o.Size == 0 {
				m.FilesWarm++
			}
			return pause()
		})
		err = cmp.Or(err, unreadable)
		if err != nil {
			m.Err, m.Error = err, err.Error()
		}
		results = append(results, m)
	}
	return results
}
