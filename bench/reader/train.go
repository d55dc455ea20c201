package reader

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/dataset"
)

// source reads the files of a training. Its methods are called by many readers.
type source interface {
	// expect tells that files will be read, in their order.
	expect(ctx context.Context, files []*dataset.File) error
	// read reads and checks a whole file with buf.
	read(ctx context.Context, f *dataset.File, buf []byte) error
	// piece reads and checks a piece of a file that is read from start to end.
	piece(ctx context.Context, f *dataset.File, offset int64, p []byte) error
	// done tells that files were read.
	done(ctx context.Context, files []*dataset.File) error
	// close ends everything and says what hints cost, nil without hints.
	close() (*HintCost, error)
}

// train carries out one epoch.
func train(ctx context.Context, job Job, m *dataset.Manifest) (out Outcome, err error) {
	files, err := job.Files(m)
	if err != nil {
		return Outcome{}, err
	}
	// As for the other patterns: threads in raw system calls keep their processor slot.
	runtime.GOMAXPROCS(job.Readers + 4)
	debug.SetGCPercent(400)
	var s source
	if job.Bucket != nil {
		s, err = openBucketSource(ctx, job, m, files)
	} else {
		s, err = openMountSource(job, m, files)
	}
	if err != nil {
		return Outcome{}, err
	}
	defer func() {
		cost, closed := s.close()
		out.Hints = cost
		if err == nil {
			err = closed
		}
	}()
	if job.List && job.Root != "" {
		if err := list(job.Root); err != nil {
			return Outcome{}, err
		}
	}
	t := &trainer{job: job, t: job.Training, manifest: m, source: s, files: files}
	return t.epoch(ctx)
}

// trainer is one epoch.
type trainer struct {
	job      Job
	t        *Training
	manifest *dataset.Manifest
	source   source
	files    []*dataset.File
}

// loaded is a batch, or a reader's share of one.
type loaded struct{ bytes, files int64 }

func (t *trainer) epoch(ctx context.Context) (Outcome, error) {
	g, ctx := errgroup.WithContext(ctx)
	// The sampler gives a reader its next batch when one of its batches is taken.
	orders := make([]chan []*dataset.File, t.job.Readers)
	batches := make([]chan loaded, t.job.Readers)
	for r := range orders {
		orders[r] = make(chan []*dataset.File, t.t.ahead())
		batches[r] = make(chan loaded, t.t.ahead()) // never full: orders bound it
	}
	begin := time.Now()
	load := t.loadFiles
	steps := len(t.files) / t.t.Batch
	if t.t.Records > 0 {
		load = t.loadRecords
		steps = len(t.files) / t.job.Readers * t.job.Readers * t.t.Records / t.t.Batch
	}
	if steps < 2 {
		return Outcome{}, fmt.Errorf("%d files make %d batches: at least two are needed", len(t.files), steps)
	}
	for r := range orders {
		g.Go(func() error { return load(ctx, r, steps, orders[r], batches[r]) })
	}
	var out Outcome
	g.Go(func() error {
		var err error
		out, err = t.steps(ctx, steps, orders, batches)
		return err
	})
	if err := g.Wait(); err != nil {
		return Outcome{}, err
	}
	out.Seconds = time.Since(begin).Seconds()
	return out, nil
}

// steps is the training itself: sample, take a batch, compute. As MLPerf Storage
// does, it leaves the first step out of the utilisation.
func (t *trainer) steps(ctx context.Context, steps int, orders []chan []*dataset.File, batches []chan loaded) (out Outcome, err error) {
	order := func(step int) error {
		if step >= steps {
			return nil
		}
		if t.t.Records > 0 {
			for r := range orders {
				orders[r] <- nil
			}
			return nil
		}
		files := t.files[step*t.t.Batch : (step+1)*t.t.Batch]
		if err := t.source.expect(ctx, files); err != nil {
			return err
		}
		orders[step%len(orders)] <- files
		return nil
	}
	ordered := t.t.ahead()
	if t.t.Records == 0 {
		ordered *= len(orders)
	}
	for step := range ordered {
		if err := order(step); err != nil {
			return Outcome{}, err
		}
	}
	var second time.Time
	var waits []float64
	compute := time.Duration(t.t.Compute * float64(time.Second))
	for step := range steps {
		began := time.Now()
		from := batches[step%len(batches) : step%len(batches)+1]
		if t.t.Records > 0 {
			from = batches
		}
		for _, c := range from {
			select {
			case b, open := <-c:
				if !open {
					return Outcome{}, ctx.Err() // the reader says why
				}
				out.Bytes += b.bytes
				out.Ops += b.files
			case <-ctx.Done():
				return Outcome{}, ctx.Err()
			}
		}
		waits = append(waits, time.Since(began).Seconds())
		if err := order(step + ordered); err != nil {
			return Outcome{}, err
		}
		time.Sleep(compute)
		if step == 0 {
			second = time.Now()
		}
	}
	for _, c := range orders {
		close(c)
	}
	if compute > 0 {
		out.Utilisation = float64(steps-1) * t.t.Compute / time.Since(second).Seconds()
	}
	out.Latencies = waits[1:]
	return out, nil
}

// loadFiles is a reader whose samples are files.
func (t *trainer) loadFiles(ctx context.Context, _, _ int, orders <-chan []*dataset.File, batches chan<- loaded) error {
	defer close(batches)
	buf := make([]byte, t.job.BlockBytes+1)
	touch(buf)
	for {
		select {
		case files, more := <-orders:
			if !more {
				return nil
			}
			b := loaded{files: int64(len(files))}
			for _, f := range files {
				if err := t.source.read(ctx, f, buf); err != nil {
					return err
				}
				b.bytes += f.Size
			}
			if err := t.source.done(ctx, files); err != nil {
				return err
			}
			batches <- b
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// loadRecords is one of the readers that read a file each, record by record.
func (t *trainer) loadRecords(ctx context.Context, reader, steps int, orders <-chan []*dataset.File, batches chan<- loaded) error {
	defer close(batches)
	buf := make([]byte, t.job.BlockBytes)
	touch(buf)
	share := int64(t.t.Batch/t.job.Readers) * t.t.RecordBytes
	next, have := reader, int64(0) // the file after the present one, bytes that were read and not used
	var file *dataset.File
	offset := int64(0)
	for range steps {
		select {
		case _, more := <-orders:
			if !more {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		b := loaded{bytes: share}
		for have < share {
			if file == nil {
				file, offset = t.files[next], 0
				next += t.job.Readers
				b.files++
				if err := t.source.expect(ctx, []*dataset.File{file}); err != nil {
					return err
				}
			}
			p := buf[:min(int64(len(buf)), file.Size-offset)]
			if err := t.source.piece(ctx, file, offset, p); err != nil {
				return err
			}
			offset += int64(len(p))
			have += int64(len(p))
			if offset == file.Size {
				if err := t.source.done(ctx, []*dataset.File{file}); err != nil {
					return err
				}
				file = nil
			}
		}
		have -= share
		batches <- b
	}
	return nil
}
