package reader

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/dataset"
)

func runFiles(job Job, m *dataset.Manifest) (Outcome, error) {
	// A thread in a raw system call keeps its processor slot, and the loops
	// allocate nothing, so that the collector is neither able nor needed to run.
	runtime.GOMAXPROCS(job.Readers + 2)
	debug.SetGCPercent(-1)
	switch job.Pattern {
	case Sequential:
		return readSequential(job, m)
	case Random:
		return readRandom(job, m)
	default:
		return readSmall(job, m)
	}
}

func readSequential(job Job, m *dataset.Manifest) (Outcome, error) {
	paths, err := cStrings(job.Root, pointers(m))
	if err != nil {
		return Outcome{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]byte, job.BlockBytes)
	touch(buf)
	var out Outcome
	start := time.Now()
	for i := range m.Files {
		if err := readWhole(job.Check, m, &m.Files[i], paths[i], buf, &out); err != nil {
			return Outcome{}, err
		}
	}
	out.Seconds = time.Since(start).Seconds()
	return out, nil
}

// readWhole opens, reads to the end and closes one file, which must have exactly
// the size that the manifest says.
func readWhole(check Check, m *dataset.Manifest, f *dataset.File, path *byte, buf []byte, out *Outcome) error {
	fd, err := rawOpen(path)
	if err != nil {
		return fmt.Errorf("open %q: %w", f.Name, err)
	}
	offset := int64(0)
	for {
		n, err := fill(fd, buf)
		if err != nil {
			return errors.Join(fmt.Errorf("read %q at %d: %w", f.Name, offset, err), rawClose(fd))
		}
		if n == 0 {
			break
		}
		if err := checkFile(check, m, f, buf[:n], offset); err != nil {
			return errors.Join(err, rawClose(fd))
		}
		offset += int64(n)
		out.Ops++
		if n < len(buf) {
			break // fill has seen the end
		}
	}
	if err := rawClose(fd); err != nil {
		return fmt.Errorf("close %q: %w", f.Name, err)
	}
	if offset != f.Size {
		return fmt.Errorf("read %q: it ended after %d of %d bytes", f.Name, offset, f.Size)
	}
	out.Bytes += offset
	return nil
}

// fill reads until buf is full or the file ends, as every whole-file read does.
func fill(fd int, buf []byte) (int, error) {
	got := 0
	for got < len(buf) {
		n, err := rawRead(fd, buf[got:])
		if err != nil {
			return got, err
		}
		if n == 0 {
			break
		}
		got += n
	}
	return got, nil
}

func readRandom(job Job, m *dataset.Manifest) (Outcome, error) {
	pages, err := job.pages(m)
	if err != nil {
		return Outcome{}, err
	}
	paths, err := cStrings(job.Root, pointers(m))
	if err != nil {
		return Outcome{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds := make([]int, len(m.Files))
	for i := range fds {
		if fds[i], err = rawOpen(paths[i]); err != nil {
			return Outcome{}, fmt.Errorf("open %q: %w", m.Files[i].Name, err)
		}
	}
	var out Outcome
	if job.EachLatency {
		out.Latencies = make([]float64, 0, len(pages))
	}
	buf := make([]byte, dataset.PageSize)
	touch(buf)
	start := time.Now()
	for _, p := range pages {
		before := time.Time{}
		if job.EachLatency {
			before = time.Now()
		}
		n, err := rawPread(fds[p.file], buf, p.offset)
		if job.EachLatency {
			out.Latencies = append(out.Latencies, time.Since(before).Seconds())
		}
		f := &m.Files[p.file]
		if err != nil || n != len(buf) {
			return Outcome{}, fmt.Errorf("read %q at %d: %d bytes, %w", f.Name, p.offset, n, err)
		}
		if err := checkPage(job.Check, m, f, buf, p.offset); err != nil {
			return Outcome{}, err
		}
		out.Ops++
		out.Bytes += int64(n)
	}
	out.Seconds = time.Since(start).Seconds()
	for _, fd := range fds {
		if err := rawClose(fd); err != nil {
			return Outcome{}, fmt.Errorf("close: %w", err)
		}
	}
	return out, nil
}

// checkPage checks one page by its content: checksums cover more than a page.
func checkPage(check Check, m *dataset.Manifest, f *dataset.File, p []byte, offset int64) error {
	content, made := m.Content(f)
	if !made {
		return fmt.Errorf("check %q: single pages of a real set cannot be checked", f.Name)
	}
	err := content.CheckStamps(p, offset)
	if check == Bytes {
		err = content.Check(p, offset)
	}
	if err != nil {
		return fmt.Errorf("check %q: %w", f.Name, err)
	}
	return nil
}

func readSmall(job Job, m *dataset.Manifest) (Outcome, error) {
	files, err := job.Files(m)
	if err != nil {
		return Outcome{}, err
	}
	largest := int64(0)
	for _, f := range files {
		largest = max(largest, f.Size)
	}
	if largest > dataset.SumSize {
		return Outcome{}, fmt.Errorf("files of %d bytes are not small", largest)
	}
	paths, err := cStrings(job.Root, files)
	if err != nil {
		return Outcome{}, err
	}
	if job.List {
		if err := list(job.Root); err != nil {
			return Outcome{}, err
		}
	}
	outs := make([]Outcome, job.Readers)
	var next atomic.Int64
	begin := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(job.Readers)
	var g errgroup.Group
	for r := range job.Readers {
		g.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			// One byte more than the largest file: the last read sees the end.
			buf := make([]byte, largest+1)
			touch(buf)
			ready.Done()
			<-begin
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				if err := readWhole(job.Check, m, files[i], paths[i], buf, &outs[r]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	err = g.Wait()
	out := Outcome{Seconds: time.Since(start).Seconds()}
	for _, o := range outs {
		out.Ops += o.Ops
		out.Bytes += o.Bytes
	}
	return out, err
}

func pointers(m *dataset.Manifest) []*dataset.File {
	files := make([]*dataset.File, len(m.Files))
	for i := range files {
		files[i] = &m.Files[i]
	}
	return files
}

func cStrings(root string, files []*dataset.File) ([]*byte, error) {
	paths := make([]*byte, len(files))
	for i, f := range files {
		var err error
		if paths[i], err = cString(filepath.Join(root, f.Name)); err != nil {
			return nil, fmt.Errorf("name %q: %w", f.Name, err)
		}
	}
	return paths, nil
}

// touch makes the pages of p present, so that no timed read pays for it.
func touch(p []byte) {
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
}
