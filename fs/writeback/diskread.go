package writeback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss"
)

const (
	// directBlock is how much is read past the kernel's memory at a time; what such reads must be
	// a multiple of divides it.
	directBlock = 1 << 20
	// acceptEnding is that of a copy of a staged file that is being made.
	acceptEnding = ".accept"
)

// readPastMemory reads size bytes of a file as the disk has them, not as the kernel remembers
// them, and gives them to each in order. remembered says that the file system knows no such
// reads; what it can be made to forget was forgotten then.
func readPastMemory(ctx context.Context, path string, size int64, each func(block []byte, off int64) error) (remembered bool, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) {
		remembered = true
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			err = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
		}
	}
	if err != nil {
		return remembered, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	// The kernel wants memory that begins at a multiple of the disk's blocks: that of a page does.
	block, err := unix.Mmap(-1, 0, directBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return remembered, fmt.Errorf("take memory to read %q: %w", path, err)
	}
	defer unix.Munmap(block) //nolint:errcheck // it is the one that was mapped
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return remembered, err
		}
		n, err := unix.Pread(fd, block, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return remembered, fmt.Errorf("read %q at %d: %w", path, off, err)
		case int64(n) < min(directBlock, size-off):
			return remembered, fmt.Errorf("read %q at %d: %w", path, off+int64(n), io.ErrUnexpectedEOF)
		}
		n = int(min(int64(n), size-off))
		if err := each(block[:n], off); err != nil {
			return remembered, err
		}
		off += int64(n)
	}
	return remembered, nil
}

// comparison sums up what the disk has, and compares it with what programs see.
type comparison struct {
	seen           io.ReaderAt
	buffer         []byte
	sum            oss.CRC64Writer
	differs, first int64
}

func newComparison(seen io.ReaderAt) *comparison {
	return &comparison{seen: seen, buffer: make([]byte, directBlock)}
}

// compare takes the next block.
func (c *comparison) compare(block []byte, off int64) error {
	_, _ = c.sum.Write(block) // it never fails
	n, err := c.seen.ReadAt(c.buffer[:len(block)], off)
	if n < len(block) {
		return fmt.Errorf("read what programs see at %d: %w", off+int64(n), err)
	}
	if bytes.Equal(block, c.buffer[:n]) {
		return nil
	}
	for i, b := range block {
		if b == c.buffer[i] {
			continue
		}
		if c.differs == 0 {
			c.first = off + int64(i)
		}
		c.differs++
	}
	return nil
}

// copyVerified makes the file fresh a copy of what the disk has at path, which is to be r, and
// returns when the disk has that.
func (s *Space) copyVerified(ctx context.Context, path, fresh string, r Remains) error {
	out, err := openStagedFile(fresh, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("make a copy: %w", err)
	}
	var sum oss.CRC64Writer
	zeros := make([]byte, directBlock)
	_, err = readPastMemory(ctx, path, r.Bytes, func(block []byte, off int64) error {
		_, _ = sum.Write(block) // it never fails
		if bytes.Equal(block, zeros[:len(block)]) {
			return nil // a hole reads the same
		}
		_, err := out.WriteAt(block, off)
		return err
	})
	if err == nil {
		err = out.Truncate(r.Bytes)
	}
	if err == nil {
		err = s.disk.Sync(out)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy what the disk has: %w", err)
	}
	var again oss.CRC64Writer
	_, err = readPastMemory(ctx, fresh, r.Bytes, func(block []byte, _ int64) error {
		_, err := again.Write(block)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the copy: %w", err)
	case sumText(uint64(sum)) != r.Sum:
		return ErrLooksOtherwise
	case again != sum:
		return fmt.Errorf("the disk has %s where %s was written: %w", sumText(uint64(again)), r.Sum, unix.EIO)
	}
	return nil
}

// sumText is a CRC-64 as it is shown.
func sumText(crc uint64) string { return fmt.Sprintf("%016x", crc) }
