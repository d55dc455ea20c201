package keysort

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Entry is one entry.
type Entry struct {
	Dir, Item, Value []byte
}

// maxRuns is how many runs are read at once: each takes a chunk of memory.
const maxRuns = 128

// Sorter sorts entries. It must be closed. It is not safe for concurrent use.
type Sorter struct {
	dir   string
	limit int
	// maxRuns is maxRuns, but in tests.
	maxRuns int

	current *buffer
	// spare is a buffer that was written and can be filled again, or nil.
	spare *buffer
	runs  []*os.File
	// spilling gives the run that a goroutine is writing, if there is one.
	spilling chan spilled
	// duplicates were passed over by merges before the last.
	duplicates int64
	sorted     bool
}

type spilled struct {
	run        *os.File
	buffer     *buffer
	duplicates int64
	err        error
}

// New returns a sorter that uses about memoryBytes of memory, of which there must
// be one MiB at least, and writes temporary files in dir.
func New(dir string, memoryBytes int64) (*Sorter, error) {
	if memoryBytes < 1<<20 {
		return nil, fmt.Errorf("memory for sorting of %d bytes is less than 1 MiB", memoryBytes)
	}
	limit := int(min(memoryBytes/2, maxData))
	return &Sorter{dir: dir, limit: limit, maxRuns: maxRuns, current: newBuffer()}, nil
}

// Add takes in an entry; it keeps nothing of the arguments. An entry without a
// value is never counted as a duplicate.
func (s *Sorter) Add(dir, item string, value []byte) error {
	if s.sorted {
		return errors.New("sort keys: they are sorted already")
	}
	s.current.add(dir, item, value)
	if s.current.bytes() < s.limit {
		return nil
	}
	return s.spill()
}

// spill has the current buffer written, after the one before it was.
func (s *Sorter) spill() error {
	if err := s.settle(); err != nil {
		return err
	}
	full := s.current
	if s.current, s.spare = s.spare, nil; s.current == nil {
		s.current = newBuffer()
	}
	done := make(chan spilled, 1)
	s.spilling = done
	go func() {
		full.sort()
		m, err := newEntries([]cursor{&bufferCursor{b: full}})
		if err != nil {
			done <- spilled{err: err}
			return
		}
		run, err := s.writeRun(context.Background(), m)
		full.reset()
		done <- spilled{run, full, m.Duplicates(), err}
	}()
	return nil
}

// settle waits for the run that is being written.
func (s *Sorter) settle() error {
	if s.spilling == nil {
		return nil
	}
	got := <-s.spilling
	s.spilling = nil
	if got.err != nil {
		return got.err
	}
	s.runs, s.spare = append(s.runs, got.run), got.buffer
	s.duplicates += got.duplicates
	return nil
}

// writeRun writes what m gives to a file that has no name any more.
func (s *Sorter) writeRun(ctx context.Context, m *Entries) (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "pailfs-sort-*")
	if err != nil {
		return nil, fmt.Errorf("sort keys: %w", err)
	}
	// Without a name it is gone when the program is, however that ends.
	if err := errors.Join(os.Remove(f.Name()), WriteRun(ctx, f, m)); err != nil {
		return nil, errors.Join(fmt.Errorf("sort keys in %s: %w", s.dir, err), f.Close())
	}
	return f, nil
}

// WriteRun writes what m gives as a run to f, which can be read by [Merge].
func WriteRun(ctx context.Context, f io.Writer, m *Entries) error {
	w := newRunWriter(f)
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e, err := m.Next()
		if err != nil {
			return err
		}
		if e == nil {
			return w.finish()
		}
		if err := w.add(e); err != nil {
			return err
		}
	}
}

// Merge returns a sorter that holds the runs, the oldest first. It owns them, and
// writes temporary files in dir if they are many. Nothing can be added to it.
func Merge(dir string, runs []*os.File) *Sorter {
	return &Sorter{dir: dir, maxRuns: maxRuns, current: newBuffer(), runs: runs, sorted: true}
}

// Sorted returns the entries in order. Nothing can be added after that. What it
// returns is valid until s is closed.
func (s *Sorter) Sorted(ctx context.Context) (*Entries, error) {
	s.sorted = true
	if err := s.settle(); err != nil {
		return nil, err
	}
	s.spare = nil
	for len(s.runs) > s.maxRuns {
		if err := s.mergeGroups(ctx); err != nil {
			return nil, err
		}
	}
	s.current.sort()
	m, err := newEntries(append(cursorsOf(s.runs), &bufferCursor{b: s.current}))
	if err != nil {
		return nil, err
	}
	m.duplicates = s.duplicates
	return m, nil
}

// mergeGroups makes one run of each maxRuns runs. Their order stays.
func (s *Sorter) mergeGroups(ctx context.Context) error {
	for at := 0; at < len(s.runs); at++ {
		group := s.runs[at:min(at+s.maxRuns, len(s.runs))]
		m, err := newEntries(cursorsOf(group))
		if err != nil {
			return err
		}
		run, err := s.writeRun(ctx, m)
		if err != nil {
			return err
		}
		s.duplicates += m.Duplicates()
		for _, f := range group {
			err = errors.Join(err, f.Close())
		}
		s.runs = slices.Replace(s.runs, at, at+len(group), run)
		if err != nil {
			return err
		}
	}
	return nil
}

func cursorsOf(runs []*os.File) []cursor {
	var all []cursor
	for _, f := range runs {
		all = append(all, &runCursor{f: f})
	}
	return all
}

// Close removes the temporary files.
func (s *Sorter) Close() error {
	err := s.settle()
	for _, f := range s.runs {
		err = errors.Join(err, f.Close())
	}
	s.runs, s.sorted, s.current, s.spare = nil, true, newBuffer(), nil
	return err
}
