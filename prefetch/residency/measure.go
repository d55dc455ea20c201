package residency

import (
	"cmp"
	"context"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/turns"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

const (
	// measureStep is how long somebody measures while others wait for it.
	measureStep = 10 * time.Millisecond
	// storeStep is how long the object store may take to answer before others have the turn. It
	// is much longer than what is known takes to be told, also where processors are busy: who
	// works, and does not wait, is to keep its turn.
	storeStep = 100 * time.Millisecond
)

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
// half of the processors to others. While it waits for the store others have its turn.
func (p *Paths) Measure(ctx context.Context, u budget.User, who session.Who, paths []string) []Measured {
	results := make([]Measured, 0, len(paths))
	mine := p.measuring.Of(u)
	if err := mine.Take(ctx); err != nil {
		return results
	}
	defer mine.End()
	pause := func() error { return mine.Pause(ctx, measureStep) }
	lent := lentRights{p.rights, mine}
	for _, path := range paths {
		if pause() != nil {
			break
		}
		m := Measured{Path: path}
		var unreadable error
		err := rights.Walk(ctx, lent, who, path, func(_ string, f rights.Found) error {
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

// lentRights lend a turn while the object store is asked.
type lentRights struct {
	rights.Rights
	turn *turns.Turn
}

func (r lentRights) Open(ctx context.Context, who session.Who, path string) (found rights.Found, err error) {
	lost := r.turn.Lend(ctx, storeStep, func() { found, err = r.Rights.Open(ctx, who, path) })
	return found, cmp.Or(err, lost)
}

func (r lentRights) ReadDir(ctx context.Context, who session.Who, path, after string) (page []rights.Found, err error) {
	lost := r.turn.Lend(ctx, storeStep, func() { page, err = r.Rights.ReadDir(ctx, who, path, after) })
	return page, cmp.Or(err, lost)
}
