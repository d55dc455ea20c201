package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/writer"
)

// besideDisk is the plain disk, used in turn with the subject in one and the same run.
const besideDisk = "disk, in the same run"

// writeRate is the link of the workloads that write, in bytes a second.
const writeRate = 600e6

// measureWrite takes samples of all subjects in turn. A client gives a series for the
// writing, and, where there are such, one for the time until it is in the bucket and
// one for the restoring.
func (r *Runner) measureWrite(ctx context.Context, w workload.Workload, o Options, subjects ...Subject) (_ []result.Series, err error) {
	if slices.ContainsFunc(subjects, func(s Subject) bool { return s.Driver.Source() == rig.FromBucket }) {
		if err := r.serve(ctx, o.Link); err != nil {
			return nil, err
		}
	}
	runs := r.cfg.Runs
	if o.Runs > 0 {
		runs = o.Runs
	}
	var used []rig.Place
	defer func() {
		for _, p := range used {
			err = errors.Join(err, os.RemoveAll(p.Work), os.RemoveAll(p.Disk))
		}
	}()
	all := make([][]result.Series, len(subjects))
	failed := make([]string, len(subjects))
	spent := make([]time.Duration, len(subjects))
	for range runs {
		for i, s := range subjects {
			if failed[i] != "" || o.exhausted(spent[i]) {
				continue
			}
			began := time.Now()
			b := &writeBench{runner: r, workload: w, options: o, subject: s}
			taken, err := b.sample(ctx)
			spent[i] += time.Since(began)
			if w.Task.Job.Pattern == writer.Small {
				used = append(used, b.place)
			}
			if err != nil && o.Tolerate && ctx.Err() == nil {
				failed[i] = err.Error()
				r.cfg.Say("  %-16s %-28s failed: %v", w.Name, s.label(), err)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("measure %s: %s: %w", w.Name, s.label(), err)
			}
			for _, x := range taken {
				r.cfg.Say("  %-16s %-28s %s", x.Workload, x.Client, x.Show())
			}
			all[i] = mergeSeries(all[i], taken)
		}
	}
	var series []result.Series
	for i, s := range subjects {
		if len(all[i]) == 0 && failed[i] != "" { // else there is nothing for it to do
			all[i] = []result.Series{{Workload: w.Name, Client: s.label(), Link: o.Link.String(), Metric: w.Metric}}
		}
		for _, x := range all[i] {
			x.Failed = failed[i]
			if len(x.Samples) > 0 {
				x.Value = result.Median(x.Values())
			}
			series = append(series, x)
		}
	}
	return series, nil
}

// mergeSeries adds the samples of more to those of the same workload.
func mergeSeries(all, more []result.Series) []result.Series {
	if len(all) == 0 {
		return more
	}
	for i := range more {
		all[i].Samples = append(all[i].Samples, more[i].Samples...)
	}
	return all
}

// writeBench takes one sample of one subject.
type writeBench struct {
	runner   *Runner
	workload workload.Workload
	options  Options
	subject  Subject

	place   rig.Place
	session rig.Session
	job     writer.Job
	// expected are the files when all is written.
	expected []writer.File
	series   []result.Series
}

// sample writes with a client that has just been started, to an empty prefix, waits
// until all is in the bucket, and compares every byte there.
func (b *writeBench) sample(ctx context.Context) (_ []result.Series, err error) {
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		keep := err != nil && b.runner.cfg.Keep
		if stopped := b.stop(context.WithoutCancel(ctx), keep); stopped != nil {
			err = errors.Join(err, stopped)
		}
	}()
	// What was written before must not be written while the clock runs.
	unix.Sync()
	if err := machine.PrepareMemory(b.freshMemory()); err != nil {
		return nil, err
	}
	if b.workload.Task.Save != nil {
		err = b.save(ctx)
	} else {
		err = b.write(ctx)
	}
	return b.series, err
}

// reads reports whether nothing is written, and every stamp was compared.
func (b *writeBench) reads() bool { return b.job.Pattern == writer.Map || b.job.Pattern == writer.Read }

// freshMemory is what the page cache will take.
func (b *writeBench) freshMemory() int64 {
	return min(b.bytes()+1<<20, 4<<30)
}

// bytes is the size of all files when all is written.
func (b *writeBench) bytes() (n int64) {
	for _, f := range b.expected {
		n += f.Size
	}
	return n
}

func (b *writeBench) fromDisk() bool { return b.subject.Driver.Source() == rig.FromDisk }

// start makes an empty place with what has to be there, and starts the client.
func (b *writeBench) start(ctx context.Context) error {
	r, w := b.runner, b.workload.Task
	b.job, b.expected = w.Job, w.Job.Files
	var err error
	if b.place, err = r.place("written"); err != nil {
		return err
	}
	b.place.Disk = filepath.Join(r.cfg.Work, "disk", "written", filepath.Base(b.place.Work))
	b.place.Writes = w.Job.Pattern != writer.Map
	b.place.Prefix = "written-" + filepath.Base(b.place.Work) + "/"
	if b.fromDisk() {
		err = os.MkdirAll(b.place.Disk, 0o755)
	} else {
		// Some clients want the directory that they mount to be there.
		err = b.put(ctx, b.place.Prefix, nil)
	}
	if err == nil && w.Exists {
		err = b.prepare(ctx)
	}
	if err == nil {
		b.session, err = b.subject.Driver.Start(ctx, b.place)
	}
	if err != nil {
		return errors.Join(err, b.stop(context.WithoutCancel(ctx), false))
	}
	b.job.Root = b.session.Root()
	if b.job.Root == "" {
		bucket := r.server.Bucket()
		b.job.Bucket, b.job.Prefix = &bucket, b.place.Prefix
		b.job.Writers, b.job.PartBytes = bareWriters, bareParts
		if b.job.Pattern == writer.Map {
			b.job.Pattern = writer.Read
		}
	}
	if b.subject.AdjustWrite != nil {
		b.subject.AdjustWrite(&b.job)
	}
	return nil
}

// The bare client's width, where it is not searched.
const (
	bareWriters = 32
	bareParts   = 16 << 20
)

// prepare makes the files that have to be there, and notes what they will be.
func (b *writeBench) prepare(ctx context.Context) error {
	job := writer.Job{Pattern: writer.Stream, Files: b.job.Files, Writers: 1}
	if b.fromDisk() {
		job.Root = b.place.Disk
	} else {
		bucket := b.runner.server.Bucket()
		job.Bucket, job.Prefix, job.Writers, job.PartBytes = &bucket, b.place.Prefix, bareWriters, bareParts
	}
	if _, _, err := b.runner.cfg.Writer.Run(ctx, job); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if b.job.Pattern == writer.Append {
		f := b.job.Files[0]
		b.expected = []writer.File{{Name: f.Name, Size: f.Size + int64(b.job.AppendBytes)*int64(b.job.Rounds)}}
	}
	return nil
}

func (b *writeBench) put(ctx context.Context, key string, p []byte) error {
	return b.withBucket(func(client *bare.Client) error {
		_, err := client.Put(ctx, key, p)
		return err
	})
}

func (b *writeBench) withBucket(do func(client *bare.Client) error) error {
	client, err := bare.Open(b.runner.server.Bucket())
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

// write carries the job out.
func (b *writeBench) write(ctx context.Context) error {
	r, w := b.runner, b.workload.Task
	if s, ok := b.session.(*rig.PailfsSession); ok && b.job.Pattern == writer.Append {
		// Every round begins with a log that is in the bucket.
		b.job.Between = s.FlushCommand(s.Mount)
		b.job.Beside = filepath.Join(b.place.Work, "beside.log")
	}
	var out writer.Outcome
	var used child.CPU
	sample, before, err := r.timed(ctx, b.session.Daemons(), func() (reader.Outcome, child.CPU, error) {
		var err error
		out, used, err = r.cfg.Writer.Run(ctx, b.job)
		return reader.Outcome{Seconds: out.Seconds, Bytes: out.Bytes, Ops: out.Ops, Latencies: out.Latencies, PeakBytes: out.PeakBytes}, used, err
	})
	if err != nil {
		return err
	}
	sample.Value = b.workload.Value(sample)
	if len(b.job.Between) > 0 {
		sample.ServerShare = sample.Spent.Server // it works between the rounds
	}
	if !w.Only {
		b.add(b.workload.Name, b.workload.Metric, sample)
	}
	if len(out.Beside) > 0 {
		beside := result.Sample{Latencies: out.Beside}
		beside.Value = b.workload.Value(beside)
		b.addOf(besideDisk, b.workload.Name, b.workload.Metric, beside)
	}
	switch {
	case b.fromDisk():
		return b.restore(ctx)
	case b.reads():
		return nil
	}
	arrived, err := b.arrive(ctx)
	if err != nil {
		return err
	}
	if b.workload.Metric != result.Seconds && !w.Only {
		late := sample
		late.Seconds = float64(arrived.UnixNano()-out.Began) / 1e9
		if b.job.Bucket != nil {
			late.Seconds = sample.Seconds // it had arrived when the last answer came
		}
		if err := r.since(ctx, &late, b.session.Daemons(), before, used); err != nil {
			return err
		}
		late.Value = b.workload.Value(late)
		b.add(b.workload.Name+workload.InStore, b.workload.Metric, late)
	}
	if err := b.restore(ctx); err != nil {
		return err
	}
	return b.withBucket(func(client *bare.Client) error { return writer.Verify(ctx, client, b.place.Prefix, b.expected) })
}

// restore reads what was written, in the state that writing and uploading have left.
func (b *writeBench) restore(ctx context.Context) error {
	if !b.workload.Task.Restore || b.job.Bucket != nil {
		return nil
	}
	if b.fromDisk() {
		// Memory that was not used for some seconds is slower on some machines; what is
		// uploaded is as old when it is read.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(b.bytes()) * time.Second / writeRate):
		}
	}
	job := b.job
	job.Pattern, job.Writers = writer.Read, 1
	sample, _, err := b.runner.timed(ctx, b.session.Daemons(), func() (reader.Outcome, child.CPU, error) {
		out, used, err := b.runner.cfg.Writer.Run(ctx, job)
		return reader.Outcome{Seconds: out.Seconds, Bytes: out.Bytes, Ops: out.Ops, PeakBytes: out.PeakBytes}, used, err
	})
	if err != nil {
		return err
	}
	sample.Value = float64(sample.Bytes) / sample.Seconds
	b.add("restore", result.BytesPerSecond, sample)
	return nil
}

// arrivalTime is how long an upload may take, and arrivalPause how often it is looked
// for.
const (
	arrivalTime  = 5 * time.Minute
	arrivalPause = 50 * time.Millisecond
)

// arrive waits until all is in the bucket at its size, and nothing else, and returns
// when that was: when the flush was over, if the listing says that everything was there
// in that second, and else when a listing has shown it.
func (b *writeBench) arrive(ctx context.Context) (at time.Time, err error) {
	if err := b.session.Flush(ctx); err != nil {
		return at, err
	}
	flushed := time.Now()
	err = b.withBucket(func(client *bare.Client) error {
		for end := time.Now().Add(arrivalTime); ; {
			missing, strange, newest, err := writer.Missing(ctx, client, b.place.Prefix, b.expected)
			switch {
			case err != nil:
				return err
			case missing == 0 && strange == 0 && newest.Unix() <= flushed.Unix():
				at = flushed
				return nil
			case missing == 0 && strange == 0:
				at = time.Now()
				return nil
			case time.Now().After(end):
				return fmt.Errorf("%d of %d files are not in the bucket after %v, and %d others are", missing, len(b.expected), arrivalTime, strange)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(arrivalPause):
			}
		}
	})
	return at, err
}

// add notes a sample as a series of its own.
func (b *writeBench) add(name string, metric result.Metric, sample result.Sample) {
	b.addOf(b.subject.label(), name, metric, sample)
}

// addOf is add for a client that was measured beside the subject.
func (b *writeBench) addOf(client, name string, metric result.Metric, sample result.Sample) {
	s := result.Series{
		Workload: name, Client: client, Link: b.options.Link.String(), Metric: metric,
		Value: sample.Value, Samples: []result.Sample{sample},
	}
	if b.workload.Task.Job.Writers > 1 {
		s.How = fmt.Sprintf("%d writers", b.workload.Task.Job.Writers)
	}
	b.series = append(b.series, s)
}

// stop ends the client and removes what was written, unless it is to be kept.
func (b *writeBench) stop(ctx context.Context, keep bool) error {
	var err error
	if b.session != nil {
		err = b.session.Stop(ctx)
		b.session = nil
	}
	if keep || b.place.Work == "" {
		return err
	}
	if b.workload.Task.Job.Pattern != writer.Small {
		// ext4 looks at every inode that was freed in the last minutes before it takes one:
		// many small files stay until all samples have been taken.
		err = errors.Join(err, os.RemoveAll(b.place.Work), os.RemoveAll(b.place.Disk))
	}
	if !b.fromDisk() {
		err = errors.Join(err, b.withBucket(func(client *bare.Client) error { return client.DeleteAll(ctx, b.place.Prefix) }))
	}
	return err
}
