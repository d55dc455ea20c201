package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// findings are what was measured.
type findings struct {
	listSeconds float64
	names       int
	// rows are the ways of reading, in the order in which they are shown.
	rows []row
	// epochSeconds is how long all images took through the mount, many at once.
	epochSeconds float64
	epochBytes   int64
	// checked is how many bytes were compared in all.
	checked int64
}

// row is one way of reading both kinds of files.
type row struct {
	name string
	// big is in bytes/s, small in files/s.
	big, small float64
	plain      bool
}

// rounds is how often the ways that can be repeated are measured, in turn.
const rounds = 3

// epochReaders is how many images are read at once in the whole epoch.
const epochReaders = 64

// read takes all measurements.
func (s *show) read(ctx context.Context) error {
	if err := s.step(ctx, "listing the mount"); err != nil {
		return err
	}
	if err := s.list(); err != nil {
		return err
	}
	if err := s.step(ctx, "reading cold: one reader for the large file, %d for %d images", s.Readers, s.Sample); err != nil {
		return err
	}
	cold, err := s.both(ctx, s.session.Mount)
	if err != nil {
		return err
	}
	cold.name = "cold, from the bucket"
	if err := s.step(ctx, "waiting until the SSD holds what was read"); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.step(ctx, "reading from SSD and from the raw disk, page cache dropped"); err != nil {
		return err
	}
	ssd, disk, err := s.inTurn(ctx, machine.DropCaches)
	if err != nil {
		return err
	}
	ssd.name, disk.name = "page cache dropped", "raw disk, dropped"
	if err := s.step(ctx, "reading warm"); err != nil {
		return err
	}
	warm, diskWarm, err := s.inTurn(ctx, func() error { return nil })
	if err != nil {
		return err
	}
	warm.name, diskWarm.name = "warm", "raw disk, warm"
	disk.plain, diskWarm.plain = true, true
	s.found.rows = []row{cold, ssd, disk, warm, diskWarm}
	return s.epoch(ctx)
}

// list walks all names, as a program does that builds its list of samples.
func (s *show) list() error {
	start := time.Now()
	err := filepath.WalkDir(s.session.Mount, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			s.found.names++
		}
		return err
	})
	s.found.listSeconds = time.Since(start).Seconds()
	if err != nil {
		return fmt.Errorf("list the mount: %w", err)
	}
	if want := len(s.data.files) + 1; s.found.names != want {
		return fmt.Errorf("list the mount: %d files are there, %d were stored", s.found.names, want)
	}
	return nil
}

// settlePasses is how often everything is read until the SSD holds it.
const settlePasses = 8

// settle waits until the SSD holds what was read. What the disk could not take
// in time was left out of it, and comes in when it is read again.
func (s *show) settle(ctx context.Context) error {
	job := s.sampleJob("")
	files, err := job.Files(s.data.images)
	if err != nil {
		return err
	}
	settle := names(s.data.packed.Files)
	for _, f := range files {
		settle = append(settle, f.Name)
	}
	for pass := 1; ; pass++ {
		err := s.session.Settle(ctx, settle)
		if pass == settlePasses || !errors.Is(err, rig.ErrUnsettled) {
			return err
		}
		if err := machine.DropCaches(); err != nil {
			return err
		}
		if _, err := s.both(ctx, s.session.Mount); err != nil {
			return err
		}
	}
}

func (s *show) bigJob(root string) reader.Job {
	return reader.Job{
		Manifest: s.path("packed.json"), Root: root, Pattern: reader.Sequential,
		Check: reader.Bytes, Readers: 1, BlockBytes: 1 << 20,
	}
}

func (s *show) sampleJob(root string) reader.Job {
	return reader.Job{
		Manifest: s.path("images.json"), Root: root, Pattern: reader.Small,
		Check: reader.Bytes, Readers: s.Readers, Count: s.Sample, Order: 1,
	}
}

// both reads the large file and the sample below root once.
func (s *show) both(ctx context.Context, root string) (row, error) {
	var r row
	big, err := s.job(ctx, s.bigJob(root))
	if err != nil {
		return row{}, err
	}
	small, err := s.job(ctx, s.sampleJob(root))
	if err != nil {
		return row{}, err
	}
	r.big, r.small = float64(big.Bytes)/big.Seconds, float64(small.Ops)/small.Seconds
	return r, nil
}

// job carries one job out. Its reader compares every byte.
func (s *show) job(ctx context.Context, job reader.Job) (reader.Outcome, error) {
	out, _, err := s.Reader.Run(ctx, job)
	s.found.checked += out.Bytes
	return out, err
}

// inTurn reads the mount and the plain copy several times, one after the other,
// each after prepare, and returns their medians.
func (s *show) inTurn(ctx context.Context, prepare func() error) (mount, plain row, err error) {
	var mounts, plains []row
	for range rounds {
		for _, side := range []struct {
			root string
			rows *[]row
		}{{s.session.Mount, &mounts}, {s.path("disk"), &plains}} {
			if err := prepare(); err != nil {
				return row{}, row{}, err
			}
			r, err := s.both(ctx, side.root)
			if err != nil {
				return row{}, row{}, err
			}
			*side.rows = append(*side.rows, r)
		}
	}
	return medianRow(mounts), medianRow(plains), nil
}

func medianRow(rows []row) row {
	var big, small []float64
	for _, r := range rows {
		big, small = append(big, r.big), append(small, r.small)
	}
	return row{big: result.Median(big), small: result.Median(small)}
}

// epoch reads all images through the mount, each once, in random order.
func (s *show) epoch(ctx context.Context) error {
	if err := s.step(ctx, "reading all %d images, %d at once", len(s.data.files), epochReaders); err != nil {
		return err
	}
	job := s.sampleJob(s.session.Mount)
	job.Count, job.Readers, job.Order = 0, epochReaders, 2
	out, err := s.job(ctx, job)
	if err != nil {
		return err
	}
	s.found.epochSeconds, s.found.epochBytes = out.Seconds, out.Bytes
	return nil
}
