package reader

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
)

// bucketSource reads objects without a file system. With Training.Gets it has that
// many requests under way, in the order of use: the most that the link allows to a
// loader that knows what comes.
type bucketSource struct {
	job      Job
	manifest *dataset.Manifest
	client   *bare.Client

	// Without Gets the fields below are unused. Every piece of the order has its
	// place in pieces; window bounds what was got and not yet used.
	pieces map[pieceOf]*got
	window chan struct{}
	gets   *errgroup.Group
	stop   context.CancelFunc
	// buffers are those that were used: fresh ones would cost a bare client more than
	// what it receives.
	buffers sync.Pool
}

// pieceOf is a piece of a file.
type pieceOf struct {
	file   *dataset.File
	offset int64
}

// of returns the part of buf that the piece fills.
func (p pieceOf) of(buf []byte) []byte { return buf[:min(getBytes, p.file.Size-p.offset)] }

// got is a piece that was asked for.
type got struct {
	ready  chan struct{}
	buffer *[]byte
	err    error
}

const (
	// getBytes is how much one request asks for at most.
	getBytes = 8 << 20
	// windowBytes is how much may have come and not be used, so that one request that
	// takes long does not stop the loader.
	windowBytes = 256 << 20
)

func openBucketSource(ctx context.Context, job Job, m *dataset.Manifest, order []*dataset.File) (*bucketSource, error) {
	client, err := bare.Open(*job.Bucket)
	if err != nil {
		return nil, err
	}
	largest := int64(0)
	for _, f := range order {
		largest = max(largest, min(getBytes, f.Size))
	}
	s := &bucketSource{job: job, manifest: m, client: client}
	s.buffers.New = func() any {
		p := make([]byte, largest)
		return &p
	}
	if job.Training.Gets == 0 {
		return s, nil
	}
	s.pieces = make(map[pieceOf]*got)
	var wanted []pieceOf
	for _, p := range s.inOrder(order) {
		wanted = append(wanted, p)
		s.pieces[p] = &got{ready: make(chan struct{})}
	}
	s.window = make(chan struct{}, max(2*job.Training.Gets, int(windowBytes/max(largest, 1))))
	ctx, s.stop = context.WithCancel(ctx)
	s.gets, ctx = errgroup.WithContext(ctx)
	s.gets.SetLimit(job.Training.Gets + 1)
	s.gets.Go(func() error {
		for _, p := range wanted {
			select {
			case s.window <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			s.gets.Go(func() error { return s.get(ctx, p) })
		}
		return nil
	})
	return s, nil
}

// inOrder are the pieces of files in the order in which they will be used. Readers
// of records read as many files side by side as there are readers.
func (s *bucketSource) inOrder(order []*dataset.File) (pieces []pieceOf) {
	side := 1
	if s.job.Training.Records > 0 {
		side = s.job.Readers
	}
	for ; len(order) > 0; order = order[min(side, len(order)):] {
		rows := order[:min(side, len(order))]
		for offset := int64(0); ; offset += getBytes {
			more := false
			for _, f := range rows {
				if offset < f.Size {
					pieces, more = append(pieces, pieceOf{f, offset}), true
				}
			}
			if !more {
				break
			}
		}
	}
	return pieces
}

// get fetches one piece.
func (s *bucketSource) get(ctx context.Context, p pieceOf) error {
	g := s.pieces[p]
	defer close(g.ready)
	g.buffer = s.buffers.Get().(*[]byte)
	g.err = s.ask(ctx, p, p.of(*g.buffer))
	return g.err
}

func (s *bucketSource) ask(ctx context.Context, p pieceOf, buf []byte) error {
	var err error
	if int64(len(buf)) == p.file.Size {
		_, err = s.client.Read(ctx, s.job.Prefix+p.file.Name, buf)
	} else {
		_, err = s.client.ReadRange(ctx, s.job.Prefix+p.file.Name, p.offset, buf)
	}
	return err
}

// take waits for a piece that was asked for, gives it to use and forgets it.
func (s *bucketSource) take(ctx context.Context, p pieceOf, use func([]byte) error) error {
	g := s.pieces[p]
	if g == nil {
		return fmt.Errorf("read %q at %d: nobody asked for it", p.file.Name, p.offset)
	}
	select {
	case <-g.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.err != nil {
		return g.err
	}
	err := use(p.of(*g.buffer))
	s.buffers.Put(g.buffer)
	g.buffer = nil
	<-s.window
	return err
}

func (s *bucketSource) expect(context.Context, []*dataset.File) error { return nil }
func (s *bucketSource) done(context.Context, []*dataset.File) error   { return nil }

// read implements [source].
func (s *bucketSource) read(ctx context.Context, f *dataset.File, _ []byte) error {
	for offset := int64(0); offset < f.Size; offset += getBytes {
		p := pieceOf{f, offset}
		check := func(b []byte) error { return checkFile(s.job.Check, s.manifest, f, b, offset) }
		if s.pieces != nil {
			if err := s.take(ctx, p, check); err != nil {
				return err
			}
			continue
		}
		if err := s.askNow(ctx, p, check); err != nil {
			return err
		}
	}
	return nil
}

// piece implements [source]. A request is for more than one piece; the first of
// them that is read checks all.
func (s *bucketSource) piece(ctx context.Context, f *dataset.File, offset int64, p []byte) error {
	if offset%getBytes != 0 {
		return nil
	}
	check := func(b []byte) error { return checkFile(s.job.Check, s.manifest, f, b, offset) }
	if s.pieces != nil {
		return s.take(ctx, pieceOf{f, offset}, check)
	}
	return s.askNow(ctx, pieceOf{f, offset}, check)
}

// askNow fetches a piece that nobody asked for before.
func (s *bucketSource) askNow(ctx context.Context, p pieceOf, use func([]byte) error) error {
	buffer := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(buffer)
	if err := s.ask(ctx, p, p.of(*buffer)); err != nil {
		return err
	}
	return use(p.of(*buffer))
}

// close implements [source].
func (s *bucketSource) close() (*HintCost, error) {
	if s.stop != nil {
		s.stop()
		_ = s.gets.Wait() // readers have met what went wrong
	}
	s.client.Close()
	return nil, nil
}
