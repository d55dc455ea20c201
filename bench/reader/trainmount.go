package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/prefetch/control"
)

// mountSource reads files of a directory. With hints it announces them to pailfs
// as the Python client's sampler does.
type mountSource struct {
	job      Job
	manifest *dataset.Manifest
	// order are the files in the order of their use, paths their names for the kernel.
	order []*dataset.File
	paths map[*dataset.File]*byte

	client  *control.Client // nil without hints
	session control.OpenResult
	echo    *echo

	mu struct {
		sync.Mutex
		// told and taken are how many files were announced, and asked for.
		told, taken int
		quota       int
		cost        HintCost
		open        map[*dataset.File]int // descriptors of files that are read in pieces
	}
}

const (
	// stepFiles, or the files of two batches, and stepBytes bound what is announced in
	// one call.
	stepFiles = 64
	stepBytes = 12 << 10
	// directoryBytes is what is read at the end of a file before the rest.
	directoryBytes = 64 << 10
)

func openMountSource(job Job, m *dataset.Manifest, order []*dataset.File) (*mountSource, error) {
	s := &mountSource{job: job, manifest: m, order: order, paths: make(map[*dataset.File]*byte, len(order))}
	s.mu.open = make(map[*dataset.File]int)
	paths, err := cStrings(job.Root, order)
	if err != nil {
		return nil, err
	}
	for i, f := range order {
		s.paths[f] = paths[i]
	}
	if !job.Training.Hints {
		return s, nil
	}
	if s.client, err = control.Dial(job.Root); err != nil {
		return nil, err
	}
	err = s.client.Call(context.Background(), "loader.open", control.OpenParams{
		Task: "bench", Buffer: job.Training.Lookahead, Instance: fmt.Sprint(time.Now().UnixNano()),
	}, &s.session)
	if err == nil {
		s.echo, err = startEcho()
	}
	if err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	return s, nil
}

// expect implements [source]: it announces what comes after files, as far as the
// daemon wants to know.
func (s *mountSource) expect(ctx context.Context, files []*dataset.File) error {
	if s.client == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.announce(ctx); err != nil {
		return err
	}
	s.mu.taken += len(files)
	if late := s.mu.taken - s.mu.told; late > 0 {
		s.mu.cost.Late += int64(late)
		s.mu.told = s.mu.taken
	}
	return nil
}

// announce tells of files until the lookahead is full or the daemon has no room.
func (s *mountSource) announce(ctx context.Context) error {
	var names []string
	bytes := 0
	step := max(stepFiles, 2*s.job.Training.Batch)
	last := min(len(s.order), s.mu.taken+s.job.Training.Lookahead, s.mu.told+step)
	if last-s.mu.told < step && s.mu.told-s.mu.taken >= 4*step {
		return nil // one call for several batches will do
	}
	for _, f := range s.order[s.mu.told:max(s.mu.told, last)] {
		if bytes += len(f.Name) + 3; bytes > stepBytes {
			break
		}
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return nil
	}
	if s.mu.quota <= 0 {
		var answer control.QuotaResult
		if err := s.client.Call(ctx, "loader.quota", control.QuotaParams{Session: s.session.Session}, &answer); err != nil {
			return err
		}
		s.mu.quota = answer.Quota
	}
	names = names[:min(len(names), s.mu.quota)]
	if len(names) == 0 {
		return nil
	}
	var answer control.PreloadResult
	began := time.Now()
	// It is answered at once, and need not be called back.
	if err := s.client.Call(context.WithoutCancel(ctx), "loader.preload", control.PathsParams{Session: s.session.Session, Paths: names}, &answer); err != nil {
		return err
	}
	s.mu.cost.Preload = append(s.mu.cost.Preload, time.Since(began).Seconds())
	echoed, err := s.echo.take()
	if err != nil {
		return err
	}
	s.mu.cost.Echo = append(s.mu.cost.Echo, echoed.Seconds())
	s.mu.cost.Files += int64(answer.Accepted)
	s.mu.told += answer.Accepted
	s.mu.quota -= answer.Accepted
	return nil
}

// done implements [source].
func (s *mountSource) done(ctx context.Context, files []*dataset.File) error {
	for _, f := range files {
		if err := s.closePiece(f); err != nil {
			return err
		}
	}
	if s.client == nil {
		return nil
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	began := time.Now()
	err := s.client.Call(ctx, "loader.release", control.PathsParams{Session: s.session.Session, Paths: names}, nil)
	took := time.Since(began).Seconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.cost.Release = append(s.mu.cost.Release, took)
	return err
}

// read implements [source].
func (s *mountSource) read(_ context.Context, f *dataset.File, buf []byte) error {
	if s.job.Training.Directory {
		if err := s.readDirectory(f, buf); err != nil {
			return err
		}
	}
	if f.Size < int64(len(buf)) {
		return readWhole(s.job.Check, s.manifest, f, s.paths[f], buf, new(Outcome))
	}
	// The last byte of buf is there so that small files show their end.
	return readWhole(s.job.Check, s.manifest, f, s.paths[f], buf[:s.job.BlockBytes], new(Outcome))
}

// readDirectory reads the end of a file, with an open of its own.
func (s *mountSource) readDirectory(f *dataset.File, buf []byte) error {
	fd, err := rawOpen(s.paths[f])
	if err != nil {
		return fmt.Errorf("open %q: %w", f.Name, err)
	}
	n := min(directoryBytes, f.Size, int64(len(buf)))
	got, err := rawPread(fd, buf[:n], f.Size-n)
	if err == nil && int64(got) != n {
		err = fmt.Errorf("%d of %d bytes", got, n)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read the end of %q: %w", f.Name, err), rawClose(fd))
	}
	return rawClose(fd)
}

// piece implements [source].
func (s *mountSource) piece(_ context.Context, f *dataset.File, offset int64, p []byte) error {
	s.mu.Lock()
	fd, open := s.mu.open[f]
	s.mu.Unlock()
	if !open {
		var err error
		if fd, err = rawOpen(s.paths[f]); err != nil {
			return fmt.Errorf("open %q: %w", f.Name, err)
		}
		s.mu.Lock()
		s.mu.open[f] = fd
		s.mu.Unlock()
	}
	for got := 0; got < len(p); {
		n, err := rawPread(fd, p[got:], offset+int64(got))
		if err == nil && n == 0 {
			err = errors.New("it ended early")
		}
		if err != nil {
			return fmt.Errorf("read %q at %d: %w", f.Name, offset, err)
		}
		got += n
	}
	return checkFile(s.job.Check, s.manifest, f, p, offset)
}

func (s *mountSource) closePiece(f *dataset.File) error {
	s.mu.Lock()
	fd, open := s.mu.open[f]
	delete(s.mu.open, f)
	s.mu.Unlock()
	if !open {
		return nil
	}
	if err := rawClose(fd); err != nil && !errors.Is(err, syscall.EINTR) {
		return fmt.Errorf("close %q: %w", f.Name, err)
	}
	return nil
}

// close implements [source].
func (s *mountSource) close() (*HintCost, error) {
	var err error
	for f := range s.mu.open {
		err = errors.Join(err, s.closePiece(f))
	}
	if s.client == nil {
		return nil, err
	}
	err = errors.Join(err, s.client.Call(context.Background(), "loader.close", control.CloseParams{Session: s.session.Session}, nil), s.client.Close(), s.echo.end())
	return &s.mu.cost, err
}
