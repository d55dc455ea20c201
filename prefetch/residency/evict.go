package residency

import (
	"cmp"
	"context"
	"errors"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Evicted tells what Evict did with one path.
type Evicted struct {
	Path  string `json:"path"`
	Files int64  `json:"files"`
	// Bytes is the room on SSD that was freed.
	Bytes int64 `json:"bytes"`
	// Held counts the files that stayed because they are in use or held.
	Held  int64  `json:"held"`
	Error string `json:"error,omitempty"`
	// Err is what Error says.
	Err error `json:"-"`
}

// Evict removes paths, files or folders, from the cache: all but what is in use
// or held, and what who may not read.
func (p *Paths) Evict(ctx context.Context, who session.Who, paths []string) []Evicted {
	results := make([]Evicted, 0, len(paths))
	for _, path := range paths {
		r := Evicted{Path: path}
		var unreadable error
		err := rights.Walk(ctx, p.rights, who, path, func(_ string, f rights.Found) error {
			switch {
			case f.Err != nil:
				unreadable = cmp.Or(unreadable, f.Err)
				return ctx.Err()
			case f.Staged:
				r.Held++
				return ctx.Err()
			}
			freed, err := p.cache.Evict(f.Object)
			switch {
			case errors.Is(err, cache.ErrHeld), errors.Is(err, cache.ErrInUse):
				r.Held++
			case err != nil:
				return err
			default:
				r.Files++
				r.Bytes += freed
			}
			return ctx.Err()
		})
		if err = cmp.Or(err, unreadable); err != nil {
			r.Err, r.Error = err, err.Error()
		}
		results = append(results, r)
	}
	return results
}
