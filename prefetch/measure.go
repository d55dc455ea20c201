package prefetch

import (
	"cmp"
	"context"

	"github.com/pailfs/pailfs/prefetch/session"
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
func (p *Prefetcher) Measure(ctx context.Context, who session.Who, paths []string) []Measured {
	results := make([]Measured, 0, len(paths))
	for _, path := range paths {
		m := Measured{Path: path}
		var unreadable error
		err := p.walk(ctx, who, path, func(_ string, f Found) error {
			if f.Err != nil {
				unreadable = cmp.Or(unreadable, f.Err)
				return ctx.Err()
			}
			o := f.Object
			m.Files++
			m.Bytes += o.Size
			if f.Staged {
				m.FilesWarm, m.BytesWarm = m.FilesWarm+1, m.BytesWarm+o.Size
				return ctx.Err()
			}
			r := p.cache.Residency(o)
			m.BytesWarm += r.SSD
			if r.Whole || o.Size == 0 {
				m.FilesWarm++
			}
			return ctx.Err()
		})
		err = cmp.Or(err, unreadable)
		if err != nil {
			m.Err, m.Error = err, err.Error()
		}
		results = append(results, m)
	}
	return results
}
