package control

import (
	"context"
	"strings"

	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// WarmOpenParams are the parameters of warm.open.
type WarmOpenParams struct {
	// Each asks for a result for every file of a folder.
	Each bool `json:"each,omitempty"`
}

// WarmOpenResult is the result of warm.open.
type WarmOpenResult struct {
	Job string `json:"job"`
}

func (l *loader) warmOpen(_ context.Context, c Caller, in WarmOpenParams) (WarmOpenResult, error) {
	job, err := l.p.Warm.Open(c.User(), in.Each)
	return WarmOpenResult{job}, answerOf(err)
}

// WarmAddParams are the parameters of warm.add.
type WarmAddParams struct {
	Job   string   `json:"job"`
	Base  string   `json:"base,omitempty"`
	Paths []string `json:"paths"`
	// Last says that no more paths will come.
	Last bool `json:"last,omitempty"`
}

// WarmAddResult is the result of warm.add.
type WarmAddResult struct {
	// Accepted is how many paths, from the first on, were taken.
	Accepted int `json:"accepted"`
}

func (l *loader) warmAdd(ctx context.Context, c Caller, in WarmAddParams) (WarmAddResult, error) {
	paths, err := absolute(c, in.Base, in.Paths)
	if err != nil {
		return WarmAddResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, preloadPatience)
	defer cancel()
	n, err := l.p.Warm.Add(ctx, in.Job, c.Who(), paths, in.Last)
	return WarmAddResult{n}, answerOf(err)
}

// WarmProgressParams are the parameters of warm.progress.
type WarmProgressParams struct {
	Job   string `json:"job"`
	After int64  `json:"after"`
}

func (l *loader) warmProgress(ctx context.Context, c Caller, in WarmProgressParams) (warm.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, progressPatience)
	defer cancel()
	progress, err := l.p.Warm.Progress(ctx, in.Job, c.Who(), in.After)
	if err != nil {
		return progress, answerOf(err)
	}
	for i := range progress.Results {
		r := &progress.Results[i]
		r.Path, r.Error = relative(c.Dir, r.Path), told(c, r.Err, r.Error)
	}
	return progress, nil
}

// relative is the inverse of within.
func relative(dir, path string) string {
	if dir == "" {
		return path
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
}

// seen is the path relative to dir, or nothing where it does not lie below: what is beside or
// above is not named to whoever sees dir only.
func seen(dir, path string) string {
	if dir != "" && path != dir && !strings.HasPrefix(path, dir+"/") {
		return ""
	}
	return relative(dir, path)
}

// told is text, or what explain makes of the error that it comes from.
func told(c Caller, err error, text string) string {
	if err == nil {
		return text
	}
	return explain(c, err)
}

// WarmCloseParams are the parameters of warm.close.
type WarmCloseParams struct {
	Job string `json:"job"`
}

func (l *loader) warmClose(_ context.Context, c Caller, in WarmCloseParams) (struct{}, error) {
	return struct{}{}, answerOf(l.p.Warm.Close(in.Job, c.UID))
}

// EvictParams are the parameters of evict.
type EvictParams struct {
	Base  string   `json:"base,omitempty"`
	Paths []string `json:"paths"`
}

// EvictResult is the result of evict.
type EvictResult struct {
	Results []residency.Evicted `json:"results"`
}

func (l *loader) evict(ctx context.Context, c Caller, in EvictParams) (EvictResult, error) {
	paths, err := absolute(c, in.Base, in.Paths)
	if err != nil {
		return EvictResult{}, err
	}
	results := l.p.Paths.Evict(ctx, c.Who(), paths)
	for i := range results {
		r := &results[i]
		r.Path, r.Error = relative(c.Dir, r.Path), told(c, r.Err, r.Error)
	}
	return EvictResult{results}, ctx.Err()
}

// MeasureParams are the parameters of measure.
type MeasureParams struct {
	Base  string   `json:"base,omitempty"`
	Paths []string `json:"paths"`
}

// MeasureResult is the result of measure.
type MeasureResult struct {
	Results []residency.Measured `json:"results"`
}

func (l *loader) measure(ctx context.Context, c Caller, in MeasureParams) (MeasureResult, error) {
	paths, err := absolute(c, in.Base, in.Paths)
	if err != nil {
		return MeasureResult{}, err
	}
	results := l.p.Paths.Measure(ctx, c.User(), c.Who(), paths)
	for i := range results {
		r := &results[i]
		r.Path, r.Error = relative(c.Dir, r.Path), told(c, r.Err, r.Error)
	}
	return MeasureResult{results}, ctx.Err()
}
