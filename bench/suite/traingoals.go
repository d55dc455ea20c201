package suite

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/train"
)

// trainingGoals are the goals of training.
func trainingGoals() []Goal {
	return []Goal{
		{Name: "train-retinanet", Work: "accelerator utilisation with small files, what it fetches for that, and how it is without hints or cache", Take: takeRetinanet},
		{Name: "train-again", Work: "the second epoch over what the cache holds, beside the disk", Take: takeAgain},
		{Name: "train-workers", Work: "epochs with 2, 4 and 6 workers and batches of 16, 32 and 64, with hints and without", Take: takeWorkers},
		{Name: "train-shapes", Work: "utilisation in the shapes of unet3d, resnet50 and cosmoflow, without a target", Take: takeShapes},
		{Name: "train-first-read", Work: "requests for the first read of what was announced and is ready", Take: takeFirstRead},
		{Name: "train-hints", Work: "what announcing costs a Python program with forked workers", Take: takeHints},
		{Name: "train-held", Work: "the daemon's memory while it holds 10,000 files", Take: takeHeld},
	}
}

var seedLink = rig.Link{Profile: "seed"}

// takeRetinanet trains with pailfs and with a bare client that knows the order.
func takeRetinanet(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "train/retinanet")
	if err != nil {
		return Taken{}, err
	}
	o := Options{Link: seedLink}
	series, err := r.Measure(ctx, w, o, withHints(rig.Pailfs{}, "pailfs, hints"), bareAhead())
	if err != nil {
		return Taken{}, err
	}
	ours, bare := &series[0], &series[1]
	work := fmt.Sprintf("%d files of %d bytes, true shuffle, batch 24, 2 readers, 47.6 ms a step, cache of a tenth of it, profile seed", r.cfg.Sizes.Training.Images, train.ImageBytes)
	relative := result.Target{Name: "train-retinanet", Work: "utilisation with hints: " + work, Against: bare.Client, Want: 0.95}
	relative.Compare(ours, bare)
	absolute := result.Target{Name: "train-retinanet-au", Work: "the same by itself", Against: "the clock", Want: 0.9, Unit: "AU"}
	absolute = figure(absolute, ours.Values(), ours.Show(), bare.Show())
	if bare.Value < 0.9 {
		absolute.Refused = "the link does not allow it: the bare client reached " + bare.Show()
	}
	bytes := result.Target{Name: "train-bytes", Work: "bytes that the server sent for each byte that was read, the same epoch", Against: "what was read", Want: 1.02, AtMost: true}
	requests := result.Target{Name: "train-requests", Work: "requests of any kind for each file that was read, the same epoch", Against: "what was read", Want: 1.02, AtMost: true}
	var sent, asked, calls, echo []float64
	late := int64(0)
	for i := range ours.Samples {
		s := &ours.Samples[i]
		sent = append(sent, float64(s.ServerBytes)/float64(s.Bytes))
		asked = append(asked, float64(total(s.Requests))/float64(s.Ops))
		late += s.Hints.Late
		calls = append(calls, 1e3*s.Hints.Preload.P99)
		echo = append(echo, 1e3*s.Hints.Echo.P99)
	}
	relative.Notes = append(relative.Notes, fmt.Sprintf("%d of the files were read before they were announced", late))
	last := &ours.Samples[len(ours.Samples)-1]
	targets := []result.Target{
		relative, absolute,
		figure(bytes, sent, result.ShowValue(float64(last.ServerBytes), result.ResidentBytes), result.ShowValue(float64(last.Bytes), result.ResidentBytes)),
		figure(requests, asked, fmt.Sprintf("%d requests", total(last.Requests)), fmt.Sprintf("%d files", last.Ops)),
		figure(result.Target{Name: "train-preload-call", Work: "call that announces the files of a batch or more, 99th percentile, a Go program, the same epoch", Against: "the clock; an echo of another process after each call", Want: 1, AtMost: true, Unit: "ms"},
			calls, fmt.Sprintf("%d files", last.Hints.Files), fmt.Sprintf("echo %.2f ms", result.Median(echo))),
	}
	plain, err := r.measurePlain(ctx, w)
	return Taken{Targets: targets, Series: append(series, plain...)}, err
}

func total(requests map[string]int64) (n int64) {
	for _, of := range requests {
		n += of
	}
	return n
}

// noCache keeps nothing of what is read.
func noCache() rig.Driver {
	return rig.Pailfs{}.With("--prefetch", "hints", "--policy-never", "*")
}

// measurePlain trains without hints, without a cache, and without a file system, for
// contrast: over fewer files, for it takes long.
func (r *Runner) measurePlain(ctx context.Context, w workload.Workload) ([]result.Series, error) {
	w.Job.Count = r.cfg.Sizes.Training.Plain
	return r.Measure(ctx, w, Options{Link: seedLink, Runs: 1},
		Subject{Driver: rig.Pailfs{}, Label: "pailfs, no hints"},
		Subject{Driver: noCache(), Label: "pailfs, no hints, no cache"},
		Subject{Driver: rig.Bare{}, Label: "bare, one file after another"},
	)
}

// takeAgain trains with what the cache on SSD holds, and with a plain copy.
func takeAgain(ctx context.Context, r *Runner) (Taken, error) {
	w, err := Find(r.cfg.Sizes, "train/retinanet-again")
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, Options{Link: seedLink}, withHints(rig.Pailfs{}, "pailfs, hints"), Subject{Driver: rig.Disk{}})
	if err != nil {
		return Taken{}, err
	}
	ours, disk := &series[0], &series[1]
	t := result.Target{
		Name: "train-again", Work: fmt.Sprintf("second epoch over %d files that the SSD holds, page cache dropped, compute time on", r.cfg.Sizes.Training.Inside),
		Against: "the disk itself", Want: 0.9,
	}
	t.Compare(ours, disk)
	most := 0.0
	for i := range ours.Samples {
		most = max(most, float64(total(ours.Samples[i].Requests)))
	}
	requests := result.Target{
		Name: "train-again-requests", Work: "requests in that epoch", Against: "the server's counters", AtMost: true, Unit: "requests",
		Measured: most, Least: most, Most: most, Subject: fmt.Sprintf("most of %d epochs", len(ours.Samples)), Reference: "–",
	}
	return Taken{Targets: []result.Target{t, requests}, Series: series}, nil
}

// The table of seeds/004: batches, with the seconds that their step took where
// loading did not matter, and numbers of workers.
var (
	workerBatches = []reader.Training{{Batch: 64, Compute: 0.1041}, {Batch: 32, Compute: 0.0557}, {Batch: 16, Compute: 0.0312}}
	workerCounts  = []int{6, 4, 2}
)

// takeWorkers measures epochs with few and many workers.
func takeWorkers(ctx context.Context, r *Runner) (taken Taken, err error) {
	w, err := Find(r.cfg.Sizes, "train/retinanet")
	if err != nil {
		return Taken{}, err
	}
	t := r.cfg.Sizes.Training
	for _, shape := range workerBatches {
		var with []float64
		for _, workers := range workerCounts {
			w := w
			w.Name = fmt.Sprintf("train/workers-%d", shape.Batch)
			w.Metric = result.FilesPerSecond
			w.Job.Training = &reader.Training{Batch: shape.Batch, Compute: shape.Compute, Lookahead: train.Lookahead}
			w.Job.Count = t.Worker
			series, err := r.Measure(ctx, w, Options{Link: seedLink, Readers: workers, Runs: min(r.cfg.Runs, 3)}, withHints(rig.Pailfs{}, "pailfs, hints"))
			if err != nil {
				return Taken{}, err
			}
			with = append(with, series[0].Value)
			taken.Series = append(taken.Series, series...)
			if t.WorkerPlain == 0 {
				continue
			}
			w.Job.Count = t.WorkerPlain
			if series, err = r.Measure(ctx, w, Options{Link: seedLink, Readers: workers, Runs: 1}, Subject{Driver: noCache(), Label: "pailfs, no hints, no cache"}); err != nil {
				return Taken{}, err
			}
			taken.Series = append(taken.Series, series...)
		}
		least, most := min(with[0], with[1], with[2]), max(with[0], with[1], with[2])
		spread := 100 * (most/least - 1)
		taken.Targets = append(taken.Targets, result.Target{
			Name: fmt.Sprintf("train-workers-%d", shape.Batch), Work: fmt.Sprintf("spread of epoch times with 2, 4 and 6 workers, batch %d, %.1f ms a step, hints", shape.Batch, 1e3*shape.Compute),
			Against: "the fastest of them", Want: 5, AtMost: true, Unit: "%", Measured: spread, Least: spread, Most: spread,
			Subject: fmt.Sprintf("%.0f, %.0f, %.0f files/s", with[2], with[1], with[0]), Reference: fmt.Sprintf("%.0f files/s without loading", float64(shape.Batch)/shape.Compute),
		})
	}
	return taken, nil
}

// takeShapes measures the other shapes beside what the link allows.
func takeShapes(ctx context.Context, r *Runner) (taken Taken, err error) {
	for _, name := range []string{"train/unet3d", "train/resnet50", "train/cosmoflow"} {
		w, err := Find(r.cfg.Sizes, name)
		if err != nil {
			return Taken{}, err
		}
		series, err := r.Measure(ctx, w, Options{Link: seedLink, Runs: min(r.cfg.Runs, 3)}, withHints(rig.Pailfs{}, "pailfs, hints"), bareAhead())
		if err != nil {
			return Taken{}, err
		}
		taken.Series = append(taken.Series, series...)
	}
	return taken, nil
}
