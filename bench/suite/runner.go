package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/writer"
)

// Config says how a [Runner] works.
type Config struct {
	// Programs is the directory of ossemu and pailfs.
	Programs string
	// Work is an empty directory, best on a file system that the kernel can pass
	// reads through to, such as ext4.
	Work  string
	Sizes workload.Sizes
	// Runs is how many samples each client gives.
	Runs int
	// Reader carries out jobs of reading, Writer those of writing.
	Reader reader.Process
	Writer writer.Process
	// Self is the program whose hidden commands list names and show them out of
	// memory.
	Self string
	// PrepareBytes is how much of the disk is written once before it is used.
	PrepareBytes int64
	// Keep leaves caches and logs of a client that failed.
	Keep bool
	// Say is told what is being done.
	Say func(format string, args ...any)
}

// Runner takes measurements, one after another.
type Runner struct {
	cfg    Config
	stage  *stage
	server *rig.Server
	link   rig.Link
	// serverCold says that the kernel's caches were dropped since the server's
	// data was last read through.
	serverCold bool
	places     int
	// memory is where a server keeps its objects in memory, "" until one was asked for.
	memory string
	// take takes a sample of a client at work. Tests of what is made of samples give their own.
	take func(ctx context.Context, b *bench, run int) (result.Sample, error)
	// watched is the daemon that tells what it does, if one does.
	watched *watched
}

// Open prepares the working directory.
func Open(cfg Config) (*Runner, error) {
	if cfg.Runs < 1 {
		return nil, fmt.Errorf("%d runs measure nothing", cfg.Runs)
	}
	for _, dir := range []string{"server", "disk", "clients"} {
		if err := os.MkdirAll(filepath.Join(cfg.Work, dir), 0o755); err != nil {
			return nil, fmt.Errorf("prepare %q: %w", cfg.Work, err)
		}
	}
	if cfg.PrepareBytes > 0 {
		cfg.Say("writing %d MiB of disk space once, so that first use is not measured", cfg.PrepareBytes>>20)
		if err := machine.PrepareSpace(filepath.Join(cfg.Work, "clients"), cfg.PrepareBytes); err != nil {
			return nil, err
		}
	}
	take := func(ctx context.Context, b *bench, run int) (result.Sample, error) { return b.sample(ctx, run) }
	return &Runner{cfg: cfg, stage: newStage(cfg.Work, cfg.Sizes), take: take}, nil
}

// Close stops the server and frees the memory that it used.
func (r *Runner) Close() error {
	err := r.stopServer()
	if r.memory != "" {
		err = errors.Join(err, os.RemoveAll(r.memory))
	}
	return err
}

func (r *Runner) stopServer() error {
	if r.server == nil {
		return nil
	}
	err := r.server.Stop()
	r.server = nil
	return err
}

// Subject is a client that takes part in a measurement.
type Subject struct {
	Driver rig.Driver
	// Label is the client's name in the results; "" means the driver's.
	Label string
	// Adjust changes the job for this client, if set; AdjustWrite one of writing.
	Adjust      func(*reader.Job)
	AdjustWrite func(*writer.Job)
}

func (s Subject) label() string {
	if s.Label != "" {
		return s.Label
	}
	return s.Driver.Name()
}

// Options vary a workload.
type Options struct {
	Link rig.Link
	// Readers replaces the workload's number of readers, if not 0.
	Readers int
	// Runs replaces the runner's number of samples, if not 0.
	Runs int
	// Patience is how long a client may take for all its samples of a workload: once it
	// has taken that long it gives no more. 0 means for ever.
	Patience time.Duration
	// Tolerate lets a client that fails, or returns wrong bytes, drop out: its series
	// says why, and the others go on.
	Tolerate bool
}

// exhausted reports whether a client that has taken so long gives no more samples.
func (o Options) exhausted(spent time.Duration) bool { return o.Patience > 0 && spent > o.Patience }

// Measure takes samples of all subjects in turn and returns a series for each.
func (r *Runner) Measure(ctx context.Context, w workload.Workload, o Options, subjects ...Subject) ([]result.Series, error) {
	if w.Task != nil {
		return r.measureWrite(ctx, w, o, subjects...)
	}
	if w.List != nil {
		return r.measureList(ctx, w, o, subjects...)
	}
	if err := r.provide(ctx, w.Set, o.Link, subjects); err != nil {
		return nil, err
	}
	benches := make([]*bench, len(subjects))
	series := make([]result.Series, len(subjects))
	for i, s := range subjects {
		benches[i] = &bench{runner: r, workload: w, options: o, subject: s}
		series[i] = result.Series{Workload: w.Name, Client: s.label(), Link: o.Link.String(), Metric: w.Metric}
		if readers := w.JobOf(0, o.Readers).Readers; readers > 1 || o.Readers > 0 {
			series[i].How = fmt.Sprintf("%d readers", readers)
		}
	}
	runs := r.cfg.Runs
	if o.Runs > 0 {
		runs = o.Runs
	}
	err := r.turns(ctx, runs, benches, series)
	keep := err != nil && r.cfg.Keep
	for _, b := range benches {
		err = errors.Join(err, b.stop(context.WithoutCancel(ctx), keep))
	}
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", w.Name, err)
	}
	for i := range series {
		if len(series[i].Samples) > 0 {
			series[i].Value = result.Median(series[i].Values())
		}
	}
	return series, nil
}

// turns lets every bench take one sample, and then the next one.
func (r *Runner) turns(ctx context.Context, runs int, benches []*bench, series []result.Series) error {
	spent := make([]time.Duration, len(benches))
	for run := range runs {
		for i, b := range benches {
			if series[i].Failed != "" || b.options.exhausted(spent[i]) {
				continue
			}
			began := time.Now()
			sample, err := r.take(ctx, b, run)
			spent[i] += time.Since(began)
			if err != nil && b.options.Tolerate && ctx.Err() == nil {
				series[i].Failed = err.Error()
				r.cfg.Say("  %-16s %-28s failed: %v", b.workload.Name, b.subject.label(), err)
				if err := b.stop(ctx, false); err != nil {
					r.cfg.Say("  %-16s %-28s and did not end well: %v", b.workload.Name, b.subject.label(), err)
					b.session = nil
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", b.subject.label(), err)
			}
			series[i].Samples = append(series[i].Samples, sample)
			r.cfg.Say("  %-16s %-28s %s", b.workload.Name, b.subject.label(), result.ShowValue(sample.Value, b.workload.Metric))
		}
	}
	return nil
}

// provide puts the data where the subjects need them and starts the server with
// the link.
func (r *Runner) provide(ctx context.Context, set workload.Set, link rig.Link, subjects []Subject) error {
	bucket := false
	for _, s := range subjects {
		if s.Driver.Source() == rig.FromDisk {
			if err := r.stage.putOnDisk(ctx, set); err != nil {
				return err
			}
			continue
		}
		bucket = true
	}
	if _, err := r.stage.manifest(set); err != nil {
		return err
	}
	if !bucket {
		return nil
	}
	return r.provideBucket(ctx, set, link)
}

func (r *Runner) provideBucket(ctx context.Context, set workload.Set, link rig.Link) error {
	if !r.stage.inBucket[set] {
		r.cfg.Say("loading set %q into the bucket", set)
		if err := r.serve(ctx, rig.Link{}); err != nil {
			return err
		}
		if err := r.stage.putInBucket(ctx, r.server, set); err != nil {
			return err
		}
	}
	if err := r.serve(ctx, link); err != nil {
		return err
	}
	if r.serverCold {
		if err := r.server.Warm(); err != nil {
			return err
		}
		r.serverCold = false
	}
	return nil
}

// serve makes the server run with link.
func (r *Runner) serve(ctx context.Context, link rig.Link) error {
	if link.Profile == "none" {
		link.Profile = ""
	}
	if r.server != nil && r.link == link {
		return nil
	}
	if err := r.stopServer(); err != nil {
		return err
	}
	dir := filepath.Join(r.cfg.Work, "server")
	if link.Memory {
		var err error
		if dir, err = r.inMemory(); err != nil {
			return err
		}
	}
	server, err := rig.StartServer(ctx, rig.ServerConfig{
		Programs: r.cfg.Programs, Dir: dir,
		Log: filepath.Join(r.cfg.Work, "server.log"), Bucket: "bench", Link: link,
	})
	if err != nil {
		return err
	}
	r.server, r.link = server, link
	return nil
}

// place returns a new place for a driver to work with set.
func (r *Runner) place(set workload.Set) (rig.Place, error) {
	r.places++
	p := rig.Place{
		Programs: r.cfg.Programs, Work: filepath.Join(r.cfg.Work, "clients", fmt.Sprint(r.places)),
		Disk: r.stage.diskDir(set), Server: r.server, Prefix: prefix(set),
	}
	if err := os.Mkdir(p.Work, 0o755); err != nil {
		return rig.Place{}, fmt.Errorf("prepare place: %w", err)
	}
	return p, nil
}

// inMemory makes a directory that lies in memory.
func (r *Runner) inMemory() (string, error) {
	if r.memory != "" {
		return r.memory, nil
	}
	dir, err := os.MkdirTemp("/dev/shm", "pailfs-bench-")
	if err != nil {
		return "", fmt.Errorf("make a place in memory: %w", err)
	}
	r.memory = dir
	return dir, nil
}
