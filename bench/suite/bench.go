package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// bench takes the samples of one subject at one workload.
type bench struct {
	runner   *Runner
	workload workload.Workload
	options  Options
	subject  Subject

	session rig.Session
	place   rig.Place
}

// job is the subject's job in the given run.
func (b *bench) job(run int) reader.Job {
	job := b.workload.JobOf(run, b.options.Readers)
	job.Manifest = b.runner.stage.manifestPath(b.workload.Set)
	if b.subject.Adjust != nil {
		b.subject.Adjust(&job)
	}
	b.session.Aim(&job)
	return job
}

// sample brings the caches into the workload's state, takes one sample, and
// checks every byte of what was read.
func (b *bench) sample(ctx context.Context, run int) (result.Sample, error) {
	if err := b.reach(ctx, run); err != nil {
		return result.Sample{}, err
	}
	job := b.job(run)
	sample, _, err := b.runner.timed(ctx, b.session.Daemons(), func() (reader.Outcome, child.CPU, error) {
		return b.runner.cfg.Reader.Run(ctx, job)
	})
	if err != nil {
		return result.Sample{}, err
	}
	sample.Value = b.workload.Value(sample)
	if err := b.verify(ctx, job); err != nil {
		return result.Sample{}, err
	}
	if b.workload.Fresh() {
		return sample, b.stop(ctx, false)
	}
	return sample, nil
}

// reach brings client and kernel into the workload's state.
func (b *bench) reach(ctx context.Context, run int) error {
	first := b.session == nil
	if first {
		if err := b.start(ctx); err != nil {
			return err
		}
	}
	switch b.workload.State {
	case workload.Cold:
		// A new client: only the disk's own pages may be left.
		if b.subject.Driver.Source() == rig.FromDisk {
			return b.drop()
		}
	case workload.Again:
		return b.readBefore(ctx)
	case workload.OnSSD:
		if first {
			if err := b.fill(ctx); err != nil {
				return err
			}
		}
		return b.drop()
	case workload.Warm:
		if first {
			if err := b.fill(ctx); err != nil {
				return err
			}
		}
		_, _, err := b.runner.cfg.Reader.Run(ctx, b.warmUp(run))
		return err
	}
	return b.runner.settle()
}

// readBefore reads the whole set with a new client, and waits until the client has
// finished what it does behind that. What it leaves out of its cache stays out: nobody
// reads a third time.
func (b *bench) readBefore(ctx context.Context) error {
	var err error
	if b.subject.Driver.Source() == rig.FromDisk {
		err = b.drop()
	} else {
		err = b.runner.settle()
	}
	if err != nil {
		return err
	}
	if _, _, err := b.runner.cfg.Reader.Run(ctx, b.wholeSet(reader.Stamps)); err != nil {
		return fmt.Errorf("read before: %w", err)
	}
	names, err := b.names()
	if err != nil {
		return err
	}
	if err := b.session.Settle(ctx, names); !errors.Is(err, rig.ErrUnsettled) {
		return err
	}
	return nil
}

// settle makes the machine ready for a sample: what was written before must not be
// written while the clock runs, and memory not be used for the first time.
func (r *Runner) settle() error {
	unix.Sync()
	return machine.PrepareMemory(r.cfg.Sizes.Memory())
}

// drop empties the kernel's caches, the server's data included.
func (b *bench) drop() error {
	b.runner.serverCold = true
	return machine.DropCaches()
}

// fillPasses is how often a set is read until the client keeps all of it.
const fillPasses = 8

// fill reads the whole set, checks it, and waits until the client keeps all of
// it.
func (b *bench) fill(ctx context.Context) error {
	names, err := b.names()
	if err != nil {
		return err
	}
	for pass := 1; ; pass++ {
		if _, _, err := b.runner.cfg.Reader.Run(ctx, b.wholeSet(reader.Bytes)); err != nil {
			return fmt.Errorf("fill the cache: %w", err)
		}
		err := b.session.Settle(ctx, names)
		if pass == fillPasses || !errors.Is(err, rig.ErrUnsettled) {
			return err
		}
		// Else the kernel would answer, and the client not hear of the reading.
		if err := b.drop(); err != nil {
			return err
		}
	}
}

// names returns the names of the set's files.
func (b *bench) names() ([]string, error) {
	m, err := b.runner.stage.manifest(b.workload.Set)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(m.Files))
	for i := range names {
		names[i] = m.Files[i].Name
	}
	return names, nil
}

// warmUp is an untimed job that reads all that the timed one will.
func (b *bench) warmUp(run int) reader.Job {
	if b.workload.Job.Pattern == reader.Small {
		return b.job(run)
	}
	return b.wholeSet(reader.Stamps)
}

// wholeSet is a job that reads every file from start to end.
func (b *bench) wholeSet(check reader.Check) reader.Job {
	job := reader.Job{
		Manifest: b.runner.stage.manifestPath(b.workload.Set), Pattern: reader.Sequential,
		Readers: 1, BlockBytes: 1 << 20, Check: check,
	}
	b.session.Aim(&job)
	return job
}

// verify reads again what the timed job has read, and checks every byte. The
// clock stands still: the kernel holds the pages that were delivered, so that
// this finds what the stamps cannot. A bucket's reader has checked every byte
// as it came.
func (b *bench) verify(ctx context.Context, job reader.Job) error {
	if job.Check != reader.Stamps {
		return nil
	}
	if job.Bucket != nil {
		return errors.New("bytes from a bucket were not checked")
	}
	job.Check = reader.Bytes
	if _, _, err := b.runner.cfg.Reader.Run(ctx, job); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

func (b *bench) start(ctx context.Context) error {
	var err error
	if b.place, err = b.runner.place(b.workload.Set); err != nil {
		return err
	}
	b.place.CacheBytes = b.workload.CacheBytes
	b.session, err = b.subject.Driver.Start(ctx, b.place)
	return err
}

// stop ends the client and removes its cache, unless it is to be kept.
func (b *bench) stop(ctx context.Context, keep bool) error {
	var err error
	if b.session != nil {
		err = b.session.Stop(ctx)
		b.session = nil
	}
	if b.place.Work != "" && err == nil && !keep {
		err = os.RemoveAll(b.place.Work)
		b.place = rig.Place{}
	}
	return err
}

// timed calls do, which carries a job out, and notes what everyone used meanwhile.
// What it used by then can be accounted further, from the meter that it returns.
func (r *Runner) timed(ctx context.Context, daemons []int, do func() (reader.Outcome, child.CPU, error)) (result.Sample, meter, error) {
	sample := result.Sample{}
	var err error
	if sample.Load, err = machine.Load(); err != nil {
		return result.Sample{}, meter{}, err
	}
	for _, pid := range daemons {
		if err := machine.ResetPeak(pid); err != nil {
			return result.Sample{}, meter{}, err
		}
	}
	if r.server != nil {
		if err := r.server.ResetStats(ctx); err != nil {
			return result.Sample{}, meter{}, err
		}
	}
	before, err := r.meter(ctx, daemons)
	if err != nil {
		return result.Sample{}, meter{}, err
	}
	r.watched.profile(ctx)
	out, used, err := do()
	if err != nil {
		return result.Sample{}, meter{}, err
	}
	sample.Seconds, sample.Bytes, sample.Ops = out.Seconds, out.Bytes, out.Ops
	sample.Latencies, sample.Utilisation = out.Latencies, out.Utilisation
	if h := out.Hints; h != nil {
		sample.Hints = &result.Hints{
			Preload: result.QuantilesOf(h.Preload), Release: result.QuantilesOf(h.Release), Echo: result.QuantilesOf(h.Echo),
			Files: h.Files, Late: h.Late,
		}
	}
	sample.Quantiles = result.QuantilesOf(out.Latencies)
	sample.ReaderPeak = out.PeakBytes
	err = r.since(ctx, &sample, daemons, before, used)
	return sample, before, errors.Join(err, r.watched.profiled())
}

// since completes a sample with what was used since before.
func (r *Runner) since(ctx context.Context, sample *result.Sample, daemons []int, before meter, used child.CPU) error {
	after, err := r.meter(ctx, daemons)
	if err != nil {
		return err
	}
	if r.server != nil {
		stats, err := r.server.Stats(ctx)
		if err != nil {
			return err
		}
		sample.Requests, sample.ServerBytes = stats.Requests, stats.BytesOut
	}
	sample.DaemonPeak = 0
	for _, pid := range daemons {
		memory, err := machine.MemoryOf(pid)
		if err != nil {
			return err
		}
		sample.DaemonPeak += memory.PeakBytes
	}
	account(sample, before, after, used)
	return nil
}

// meter is what has been used up to a moment.
type meter struct {
	at                          time.Time
	busy, own, daemons, servers time.Duration
	// daemonKernel is the part of daemons that the kernel used, disk what the disk did.
	daemonKernel time.Duration
	disk         machine.Disk
	calls        map[string]map[string]result.Calls
}

func (r *Runner) meter(ctx context.Context, daemons []int) (meter, error) {
	m := meter{at: time.Now()}
	var err error
	if m.calls, err = r.watched.calls(ctx); err != nil {
		return meter{}, err
	}
	if m.busy, err = machine.BusyTime(); err != nil {
		return meter{}, err
	}
	if m.disk, err = machine.DiskOf(r.cfg.Work); err != nil {
		return meter{}, err
	}
	if m.own, err = machine.CPUTime(os.Getpid()); err != nil {
		return meter{}, err
	}
	for _, pid := range daemons {
		used, err := machine.CPUTime(pid)
		if err != nil {
			return meter{}, err
		}
		kernel, err := machine.SystemTime(pid)
		if err != nil {
			return meter{}, err
		}
		m.daemons, m.daemonKernel = m.daemons+used, m.daemonKernel+kernel
	}
	if r.server != nil {
		if m.servers, err = machine.CPUTime(r.server.PID()); err != nil {
			return meter{}, err
		}
	}
	return m, nil
}

// account fills in who used how much. The server's share is taken of the timed
// seconds: outside them it rests.
func account(s *result.Sample, before, after meter, reader child.CPU) {
	cores := float64(processors())
	daemon, server := after.daemons-before.daemons, after.servers-before.servers
	s.ReaderCPU, s.DaemonCPU, s.ServerCPU = reader.All().Seconds(), daemon.Seconds(), server.Seconds()
	s.DiskRead = after.disk.ReadBytes - before.disk.ReadBytes
	s.ServerShare = min(1, server.Seconds()/(s.Seconds*cores))
	other := after.busy - before.busy - (after.own - before.own) - reader.All() - daemon - server
	span := after.at.Sub(before.at).Seconds()
	share := func(d time.Duration) float64 { return max(0, d.Seconds()/(span*cores)) }
	s.OtherShare = share(other)
	kernel := min(daemon, after.daemonKernel-before.daemonKernel)
	s.Spent = &result.Spent{
		Program: share(reader.User), ProgramKernel: share(reader.System), Daemon: share(daemon - kernel), DaemonKernel: share(kernel),
		Server: share(server), Other: share(other + after.own - before.own), Disk: min(1, (after.disk.Busy-before.disk.Busy).Seconds()/span), Seconds: span,
		Kernel: callsSince(before.calls[kernelCalls], after.calls[kernelCalls]), Store: callsSince(before.calls[storeCalls], after.calls[storeCalls]),
	}
}
