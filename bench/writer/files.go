package writer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/machine"
)

// runFiles is one writer. gate is called when all is prepared.
func runFiles(ctx context.Context, job Job, gate func() error) (out Outcome, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	debug.SetGCPercent(-1)
	c := NewContent()
	var do func() error
	switch job.Pattern {
	case Stream:
		do = func() error {
			return each(job, &out, func(path string, f File) error { return writeFile(c, path, f, !job.NoSync) })
		}
	case Small:
		dirs := directories(job)
		do = func() error {
			if err := makeDirectories(dirs); err != nil {
				return err
			}
			return each(job, &out, func(path string, f File) error { return writeSmall(c, path, f) })
		}
	case Read:
		buf := make([]byte, blockBytes)
		touch(buf)
		do = func() error {
			return each(job, &out, func(path string, f File) error { return readFile(c, path, f, buf) })
		}
	case Map:
		buf := make([]byte, blockBytes)
		touch(buf)
		debug.SetPanicOnFault(true)
		do = func() error {
			return each(job, &out, func(path string, f File) error { return mapFile(c, path, f, buf) })
		}
	default:
		return appendRounds(ctx, job, c)
	}
	if err := gate(); err != nil {
		return out, err
	}
	began := time.Now()
	err = do()
	out.Began, out.Seconds = began.UnixNano(), time.Since(began).Seconds()
	return out, err
}

// each calls do for every file and counts.
func each(job Job, out *Outcome, do func(path string, f File) error) error {
	for _, f := range job.Files {
		if err := do(filepath.Join(job.Root, f.Name), f); err != nil {
			return fmt.Errorf("%s %q: %w", job.Pattern, f.Name, err)
		}
		out.Ops++
		out.Bytes += f.Size
	}
	return nil
}

// again repeats a call that a signal has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func open(path string, flags int) (int, error) {
	return again(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0o644) })
}

// writeAll writes p at the descriptor's position.
func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := again(func() (int, error) { return unix.Write(fd, p) })
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func writeFile(c *Content, path string, f File, sync bool) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	c.File(f.Name)
	for i := int64(0); i*blockBytes < f.Size; i++ {
		if err := writeAll(fd, c.Block(i, int(min(blockBytes, f.Size-i*blockBytes)))); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	if sync {
		if _, err := again(func() (int, error) { return 0, unix.Fsync(fd) }); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	return unix.Close(fd)
}

func writeSmall(c *Content, path string, f File) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	c.File(f.Name)
	return errors.Join(writeAll(fd, c.Block(0, int(f.Size))), unix.Close(fd))
}

// directories are those of the job's files, each once, in the order of their use.
func directories(job Job) []string {
	var dirs []string
	last := ""
	for _, f := range job.Files {
		if dir := filepath.Join(job.Root, filepath.Dir(f.Name)); dir != last {
			dirs, last = append(dirs, dir), dir
		}
	}
	return dirs
}

func makeDirectories(dirs []string) error {
	for _, dir := range dirs {
		if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make directory %q: %w", dir, err)
		}
	}
	return nil
}

// readFile reads f to its end and compares the stamps.
func readFile(c *Content, path string, f File, buf []byte) error {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	c.File(f.Name)
	off := int64(0)
	for {
		got := 0
		for got < len(buf) {
			n, err := again(func() (int, error) { return unix.Read(fd, buf[got:]) })
			if err != nil {
				return errors.Join(err, unix.Close(fd))
			}
			if n == 0 {
				break
			}
			got += n
		}
		if err := checkStamp(c, buf[:got], off); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		off += int64(got)
		if got < len(buf) {
			break
		}
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	if off != f.Size {
		return fmt.Errorf("it ended after %d of %d bytes", off, f.Size)
	}
	return nil
}

// checkStamp compares the stamp of a block.
func checkStamp(c *Content, p []byte, off int64) error {
	return c.Check(p[:min(stampBytes, len(p))], off)
}

// mapFile maps f, whose size has to be right, and copies it out in tensors of 64 MiB
// through buf.
func mapFile(c *Content, path string, f File, buf []byte) (err error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	// The header, which says where the tensors are, is read first.
	if _, err := again(func() (int, error) { return unix.Pread(fd, buf[:64<<10], 0) }); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size != f.Size {
		return fmt.Errorf("its size is %d, want %d", st.Size, f.Size)
	}
	p, err := unix.Mmap(fd, 0, int(f.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(p)) }()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the mapping could not be read: %v", fault)
		}
	}()
	c.File(f.Name)
	for off := int64(0); off < f.Size; off += blockBytes {
		n := copy(buf, p[off:])
		if err := checkStamp(c, buf[:n], off); err != nil {
			return err
		}
	}
	return nil
}

// appendRounds appends over and over; each round is timed by itself.
func appendRounds(ctx context.Context, job Job, c *Content) (Outcome, error) {
	f := job.Files[0]
	path := filepath.Join(job.Root, f.Name)
	out := Outcome{Began: time.Now().UnixNano()}
	buf := make([]byte, job.AppendBytes)
	c.File(f.Name)
	size := f.Size
	if job.Beside != "" {
		if err := os.WriteFile(job.Beside, nil, 0o600); err != nil {
			return out, err
		}
	}
	for round := range job.Rounds {
		c.Fill(buf, size)
		// Whatever ran since the last round has given memory back, to the machine's host perhaps.
		if err := machine.PrepareMemory(4 * int64(len(buf))); err != nil {
			return out, err
		}
		var took float64
		for turn := range 2 {
			if beside := turn == round%2; !beside {
				t, err := appendOnce(path, buf)
				if err != nil {
					return out, fmt.Errorf("append to %q: %w", f.Name, err)
				}
				took = t
			} else if job.Beside != "" {
				t, err := appendOnce(job.Beside, buf)
				if err != nil {
					return out, fmt.Errorf("append to %q: %w", job.Beside, err)
				}
				out.Beside = append(out.Beside, t)
			}
		}
		size += int64(len(buf))
		out.Latencies = append(out.Latencies, took)
		out.Seconds += took
		out.Ops++
		out.Bytes += int64(len(buf))
		if len(job.Between) > 0 {
			if text, err := exec.CommandContext(ctx, job.Between[0], job.Between[1:]...).CombinedOutput(); err != nil {
				return out, fmt.Errorf("%v: %w: %s", job.Between, err, text)
			}
		}
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() != size {
		err = fmt.Errorf("append to %q: it has %d bytes, want %d", f.Name, info.Size(), size)
	}
	return out, err
}

// appendOnce returns the seconds that it took.
func appendOnce(path string, p []byte) (float64, error) {
	began := time.Now()
	fd, err := open(path, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return 0, err
	}
	err = errors.Join(writeAll(fd, p), unix.Close(fd))
	return time.Since(began).Seconds(), err
}

// touch makes the pages of p present, so that no timed call pays for it.
func touch(p []byte) {
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
}
