package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

const (
	// measureRest is how many times as long as a measurement took the next one waits, so that
	// a dataset of millions of files costs 2 % of a core.
	measureRest = 50
	// unlistedEvery is the least time between two measurements where the mount has no
	// manifest: each lists the dataset in the object store.
	unlistedEvery = 10 * time.Minute
)

// datasets measures datasets.
type datasets struct {
	cfg    *Config
	mounts []*mountWatcher
	mu     struct {
		sync.Mutex
		// asked are those that pods of this node name, known those that were measured
		// or are to be.
		asked map[string]bool
		known map[string]*dataset
	}
	// wake says that there may be something to measure.
	wake chan struct{}
}

// dataset is one dataset.
type dataset struct {
	api.DatasetStatus
	// next is when it is due.
	next time.Time
	// failed says why the last measurement failed, so that it is logged once.
	failed string
}

func newDatasets(cfg *Config, mounts []*mountWatcher) *datasets {
	d := &datasets{cfg: cfg, mounts: mounts, wake: make(chan struct{}, 1)}
	d.mu.known = map[string]*dataset{}
	d.remember(cfg.Datasets)
	return d
}

// remember adds datasets to those that are measured.
func (d *datasets) remember(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		if d.mu.known[n] == nil && len(d.mu.known) < 2*api.MaxDatasets {
			d.mu.known[n] = &dataset{DatasetStatus: api.DatasetStatus{Name: n, Hash: api.DatasetHash(n)}}
		}
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// ask says which datasets pods of this node name now.
func (d *datasets) ask(names map[string]bool) {
	d.mu.Lock()
	d.mu.asked = names
	d.mu.Unlock()
	d.remember(slices.Sorted(maps.Keys(names)))
}

// report returns the datasets worth a word: of which bytes are here, or which somebody
// asks for; by name, at most [api.MaxDatasets].
func (d *datasets) report() []api.DatasetStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []api.DatasetStatus
	for name, s := range d.mu.known {
		if s.Mount != "" && (s.BytesWarm > 0 || d.mu.asked[name] || slices.Contains(d.cfg.Datasets, name)) {
			out = append(out, s.DatasetStatus)
		}
	}
	slices.SortFunc(out, func(a, b api.DatasetStatus) int { return int(min(1, max(-1, b.BytesWarm-a.BytesWarm))) })
	out = out[:min(len(out), api.MaxDatasets)]
	slices.SortFunc(out, func(a, b api.DatasetStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// run measures what is due until ctx ends.
func (d *datasets) run(ctx context.Context, news func()) {
	for {
		name, wait := d.due(time.Now())
		if name != "" {
			d.measure(ctx, name)
			news()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-time.After(wait):
		}
	}
}

// due returns a dataset that is due, or how long none will be.
func (d *datasets) due(now time.Time) (name string, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wait = d.cfg.MeasureEvery
	for n, s := range d.mu.known {
		if s.Mount != "" && s.BytesWarm == 0 && !d.mu.asked[n] && !slices.Contains(d.cfg.Datasets, n) {
			delete(d.mu.known, n) // it has left the cache and nobody asks for it
			continue
		}
		left := s.next.Sub(now)
		if left <= 0 {
			return n, 0
		}
		wait = min(wait, left)
	}
	return "", wait
}

// measure measures one dataset in the mount that shows it.
func (d *datasets) measure(ctx context.Context, name string) {
	m, below, ok := d.mountOf(name)
	began := time.Now()
	next := began.Add(d.cfg.MeasureEvery)
	var found measured
	var err error
	if ok {
		found, err = measure(ctx, d.cfg.Pailfs, m.Path, below)
		if end := time.Now(); m.status.Manifest.Mode == "off" {
			next = end.Add(max(unlistedEvery, d.cfg.MeasureEvery))
		} else {
			next = end.Add(max(d.cfg.MeasureEvery, measureRest*end.Sub(began)))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.mu.known[name]
	s.next = next
	if !ok {
		return // no mount shows it, or the one that does is away: what was known stays
	}
	s.Mount = m.Name
	if err != nil {
		if text := err.Error(); text != s.failed && ctx.Err() == nil {
			d.cfg.Log.Warn("a dataset cannot be measured", "dataset", name, "error", text)
			s.failed = text
		}
		return
	}
	s.failed = ""
	s.BytesWarm, s.BytesTotal, s.Files, s.FilesWarm = found.BytesWarm, found.Bytes, found.Files, found.FilesWarm
}

// mountOf returns the mount that shows a dataset, the one that shows least beside it,
// and the dataset's path in it.
func (d *datasets) mountOf(name string) (best mountState, below string, ok bool) {
	for _, w := range d.mounts {
		m, known := w.state()
		if !known || !m.ready() || m.status == nil {
			continue
		}
		if p, shows := pathOf(m.status.Source, name); shows && (!ok || len(p) < len(below)) {
			best, below, ok = m, p, true
		}
	}
	return best, below, ok
}
