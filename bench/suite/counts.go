package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/read"
)

// countedFiles is for how many files requests are counted, each by itself.
const countedFiles = 10

// takeRequests counts the requests of stat + open + read of a small file whose
// directory has been listed: the first time, again, and after a restart.
func takeRequests(ctx context.Context, r *Runner) (taken Taken, err error) {
	if err := r.provideBucket(ctx, read.Small, rig.Link{}); err != nil {
		return Taken{}, err
	}
	m, err := r.stage.manifest(read.Small)
	if err != nil {
		return Taken{}, err
	}
	place, err := r.place(read.Small)
	if err != nil {
		return Taken{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place.Work)) }()
	steps := []struct {
		name, work string
		want       float64
	}{
		{"requests-first", "stat + open + read of a listed small file", 1},
		{"requests-again", "the same again", 0},
		{"requests-restart", "the same after a restart", 0},
	}
	var session rig.Session
	defer func() {
		if session != nil {
			err = errors.Join(err, session.Stop(context.WithoutCancel(ctx)))
		}
	}()
	for i, step := range steps {
		if i != 1 { // the second step goes on with the first one's mount
			if session != nil {
				stopped := session
				session = nil
				if err := stopped.Stop(ctx); err != nil {
					return Taken{}, err
				}
			}
			if session, err = (rig.Pailfs{}).Start(ctx, place); err != nil {
				return Taken{}, err
			}
		}
		most, err := r.countRequests(ctx, session, m)
		if err != nil {
			return Taken{}, err
		}
		taken.Targets = append(taken.Targets, result.Target{
			Name: step.name, Work: step.work, Against: "the server's counters", Want: step.want, AtMost: true,
			Unit: "requests", Measured: most, Least: most, Most: most,
			Subject: fmt.Sprintf("most of %d files", countedFiles), Reference: "–",
		})
	}
	return taken, nil
}

// countRequests returns the most requests that one of the files took.
func (r *Runner) countRequests(ctx context.Context, session rig.Session, m *dataset.Manifest) (float64, error) {
	var aim reader.Job
	session.Aim(&aim)
	most := int64(0)
	for i := range countedFiles {
		f := &m.Files[i*len(m.Files)/countedFiles]
		path := filepath.Join(aim.Root, f.Name)
		for _, dir := range []string{aim.Root, filepath.Dir(path)} {
			if _, err := os.ReadDir(dir); err != nil {
				return 0, fmt.Errorf("list: %w", err)
			}
		}
		if err := r.server.ResetStats(ctx); err != nil {
			return 0, err
		}
		if _, err := os.Stat(path); err != nil {
			return 0, fmt.Errorf("count requests: %w", err)
		}
		p, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("count requests: %w", err)
		}
		if int64(len(p)) != f.Size {
			return 0, fmt.Errorf("count requests: %q has %d bytes, want %d", f.Name, len(p), f.Size)
		}
		if err := f.CheckSums(p, 0); err != nil {
			return 0, err
		}
		stats, err := r.server.Stats(ctx)
		if err != nil {
			return 0, err
		}
		requests := int64(0)
		for _, n := range stats.Requests {
			requests += n
		}
		if requests > most {
			r.cfg.Say("  %q took %v", f.Name, stats.Requests)
		}
		most = max(most, requests)
	}
	return float64(most), nil
}

// The mount whose memory is watched: a memory tier of known size, and an SSD
// tier far smaller than what is read.
const (
	watchedMemory = 256 << 20
	watchedSSD    = "2GiB"
)

// takeMemory reads a huge object cold and compares the daemon's largest resident
// size with its memory tier.
func takeMemory(ctx context.Context, r *Runner) (taken Taken, err error) {
	driver := rig.Pailfs{Variant: "memory"}.With("--memory", fmt.Sprintf("%dMiB", watchedMemory>>20), "--cache-size", watchedSSD)
	w := workload.Workload{
		Name: "memory/stream", Set: read.Stream, State: workload.Cold, Metric: result.BytesPerSecond,
		Job: reader.Job{Pattern: reader.Sequential, BlockBytes: 1 << 20, Readers: 1, Check: reader.Bytes},
	}
	series, err := r.Measure(ctx, w, Options{Runs: 1}, Subject{Driver: driver})
	if r.server != nil {
		err = errors.Join(err, r.stage.dropFromBucket(context.WithoutCancel(ctx), r.server, read.Stream))
	}
	if err != nil {
		return Taken{}, err
	}
	peak := float64(series[0].Samples[0].DaemonPeak)
	above := peak - watchedMemory
	target := result.Target{
		Name: "memory", Work: fmt.Sprintf("daemon's resident memory above its memory tier (%d MiB) while reading %d MiB cold", watchedMemory>>20, r.cfg.Sizes.StreamBytes>>20),
		Against: "the memory tier's size", Want: 150e6, AtMost: true, Unit: "B",
		Measured: above, Least: above, Most: above,
		Subject: result.ShowValue(peak, result.ResidentBytes), Reference: result.ShowValue(watchedMemory, result.ResidentBytes),
	}
	return Taken{Targets: []result.Target{target}, Series: series}, nil
}

// takeServer states what the server itself can do, so that a reader can judge
// how much of another figure is the server's.
func takeServer(ctx context.Context, r *Runner) (Taken, error) {
	var taken Taken
	w, err := Find(r.cfg.Sizes, "read/seq-cold")
	if err != nil {
		return Taken{}, err
	}
	w.Name = "server/seq"
	best, err := r.BestBare(ctx, w, Options{}, reader.Bytes)
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, Options{}, best)
	if err != nil {
		return Taken{}, err
	}
	taken.Series = append(taken.Series, series...)
	if w, err = Find(r.cfg.Sizes, "read/small-cold"); err != nil {
		return Taken{}, err
	}
	w.Name = "server/small"
	if series, err = r.Measure(ctx, w, Options{Readers: 32}, BareChecked()); err != nil {
		return Taken{}, err
	}
	taken.Series = append(taken.Series, series...)
	return taken, nil
}
