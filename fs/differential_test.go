package fs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The differential test runs in a process of its own, because page faults on the
// mount must not stop the daemon, which is the test here.

type differentialArgs struct {
	Mount, Local, Scratch string
	Paths                 []string
	Readers, Ops          int
	Seed                  uint64
}

type differentialResult struct {
	// Done counts what was done, by kind: what only failed alike is not.
	Done map[string]int
}

// pair is one file on the mount and its copy, both open.
type pair struct {
	path         string
	mount, local *os.File
	size         int64
	rng          *rand.Rand
	scratch      string
	// did says that something came of what was done last.
	did bool
}

// outcome is what a read of any kind gave.
type outcome struct {
	data  []byte
	n     int64
	errno syscall.Errno
}

var errDiffers = errors.New("mount and copy differ")

// differentialKinds are the ways to read. Each does one thing to both files with
// the same numbers and compares.
var differentialKinds = []struct {
	name string
	do   func(p *pair) error
}{
	{"pread", func(p *pair) error {
		off, n := p.window(2 << 20)
		return p.both(func(f *os.File) outcome {
			buf := make([]byte, n)
			return got(buf, func() (int, error) { return unix.Pread(int(f.Fd()), buf, off) })
		})
	}},
	{"preadv", func(p *pair) error {
		off, n := p.window(1 << 20)
		cut := p.rng.IntN(n + 1)
		return p.both(func(f *os.File) outcome {
			buf := make([]byte, n)
			return got(buf, func() (int, error) { return unix.Preadv(int(f.Fd()), [][]byte{buf[:cut], buf[cut:]}, off) })
		})
	}},
	{"lseek and read", func(p *pair) error {
		off, n := p.window(300_000)
		whence := []int{unix.SEEK_SET, unix.SEEK_CUR, unix.SEEK_END}[p.rng.IntN(3)]
		if whence == unix.SEEK_END {
			off -= p.size
		}
		return p.both(func(f *os.File) outcome {
			at, err := unix.Seek(int(f.Fd()), off, whence)
			if err != nil {
				return outcome{errno: syscall.Errno(errnoNumber(err))}
			}
			buf := make([]byte, n)
			o := got(buf, func() (int, error) { return unix.Read(int(f.Fd()), buf) })
			o.n += at << 24
			return o
		})
	}},
	{"lseek for holes", func(p *pair) error {
		off := p.rng.Int64N(p.size + 10)
		for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
			if err := p.both(func(f *os.File) outcome {
				at, err := unix.Seek(int(f.Fd()), off, whence)
				return outcome{n: at, errno: syscall.Errno(errnoNumber(err))}
			}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"mmap", func(p *pair) error {
		if p.size == 0 {
			return nil
		}
		seed := p.rng.Uint64()
		advice := []int{unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL}[p.rng.IntN(3)]
		flags := []int{unix.MAP_SHARED, unix.MAP_PRIVATE}[p.rng.IntN(2)]
		return p.both(func(f *os.File) outcome {
			m, err := unix.Mmap(int(f.Fd()), 0, int(p.size), unix.PROT_READ, flags)
			if err != nil {
				return outcome{errno: syscall.Errno(errnoNumber(err))}
			}
			defer func() { _ = unix.Munmap(m) }() // was only read
			_ = unix.Madvise(m, advice)
			rng := rand.New(rand.NewPCG(seed, 0))
			var seen []byte
			for range 20 {
				at := rng.Int64N(p.size)
				seen = append(seen, m[at:min(at+rng.Int64N(20_000)+1, p.size)]...)
			}
			return outcome{data: seen}
		})
	}},
	{"direct", func(p *pair) error {
		off := p.rng.Int64N(p.size/4096+2) * 4096
		n := (p.rng.IntN(500) + 1) * 4096
		return p.both(func(f *os.File) outcome {
			fd, err := unix.Open(f.Name(), unix.O_RDONLY|unix.O_DIRECT, 0)
			if err != nil {
				return outcome{errno: syscall.Errno(errnoNumber(err))}
			}
			defer func() { _ = unix.Close(fd) }() // only read
			buf := aligned(n)
			return got(buf, func() (int, error) { return unix.Pread(fd, buf, off) })
		})
	}},
	{"sendfile", func(p *pair) error {
		off, n := p.window(3 << 20)
		return p.through(func(f, to *os.File) (int64, error) {
			at := off
			n, err := unix.Sendfile(int(to.Fd()), int(f.Fd()), &at, n)
			return int64(n), err
		})
	}},
	{"copy_file_range", func(p *pair) error {
		off, n := p.window(3 << 20)
		return p.through(func(f, to *os.File) (int64, error) {
			at := off
			moved, err := unix.CopyFileRange(int(f.Fd()), &at, int(to.Fd()), nil, n, 0)
			if errors.Is(err, unix.EXDEV) && f == p.mount {
				// The kernel copies between file systems of one type only; cp and others
				// go on with this.
				moved, err = unix.Sendfile(int(to.Fd()), int(f.Fd()), &at, n)
			}
			return int64(moved), err
		})
	}},
	{"splice", func(p *pair) error {
		off, _ := p.window(1)
		return p.both(func(f *os.File) outcome {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				return outcome{errno: syscall.Errno(errnoNumber(err))}
			}
			defer func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) }() // pipes do not fail
			var all []byte
			for at := off; len(all) < 200_000; {
				moved, err := unix.Splice(int(f.Fd()), &at, ends[1], nil, 30_000, 0)
				if err != nil || moved == 0 {
					return outcome{data: all, errno: syscall.Errno(errnoNumber(err))}
				}
				buf := make([]byte, moved)
				if _, err := io.ReadFull(fdReader(ends[0]), buf); err != nil {
					return outcome{errno: unix.EPIPE}
				}
				all = append(all, buf...)
			}
			return outcome{data: all}
		})
	}},
	{"whole", func(p *pair) error {
		return p.both(func(f *os.File) outcome {
			b, err := os.ReadFile(f.Name())
			return outcome{data: b, errno: syscall.Errno(errnoNumber(err))}
		})
	}},
	{"drop pages", func(p *pair) error {
		p.did = true
		return unix.Fadvise(int(p.mount.Fd()), 0, 0, unix.FADV_DONTNEED)
	}},
	{"readahead", func(p *pair) error {
		off, n := p.window(4 << 20)
		p.did = true
		return unix.Fadvise(int(p.mount.Fd()), off, int64(n), unix.FADV_WILLNEED)
	}},
}

type fdReader int

func (r fdReader) Read(p []byte) (int, error) { return unix.Read(int(r), p) }

// got runs a read into buf.
func got(buf []byte, read func() (int, error)) outcome {
	n, err := read()
	if err != nil {
		return outcome{errno: syscall.Errno(errnoNumber(err))}
	}
	return outcome{data: buf[:n], n: int64(n)}
}

// aligned returns n bytes that O_DIRECT accepts.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	skip := (4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)) % 4096
	return b[skip : skip+n]
}

// window picks where to read: anywhere, and sometimes across or beyond the end.
func (p *pair) window(most int) (off int64, n int) {
	n = p.rng.IntN(most) + 1
	switch p.rng.IntN(10) {
	case 0:
		return max(p.size-int64(p.rng.IntN(5000)), 0), n
	case 1:
		return p.size + int64(p.rng.IntN(10_000)), n
	case 2:
		return 0, n
	}
	return p.rng.Int64N(p.size + 1), n
}

// both does a read on both files and compares.
func (p *pair) both(read func(f *os.File) outcome) error {
	a, b := read(p.mount), read(p.local)
	p.did = p.did || a.errno == 0
	if a.errno != b.errno || a.n != b.n || !bytes.Equal(a.data, b.data) {
		at := 0
		for at < min(len(a.data), len(b.data)) && a.data[at] == b.data[at] {
			at++
		}
		return fmt.Errorf("%w: %s of %d bytes: mount %d bytes, n %d, %q; copy %d bytes, n %d, %q; first difference at %d: %x, want %x",
			errDiffers, p.path, p.size, len(a.data), a.n, a.errno.Error(), len(b.data), b.n, b.errno.Error(), at, some(a.data, at), some(b.data, at))
	}
	return nil
}

// some returns a few bytes from at.
func some(p []byte, at int) []byte { return p[min(at, len(p)):min(at+32, len(p))] }

// through compares what arrives in a file that a system call copies to.
func (p *pair) through(copyTo func(f, to *os.File) (int64, error)) error {
	return p.both(func(f *os.File) outcome {
		to, err := os.CreateTemp(p.scratch, "copy")
		if err != nil {
			return outcome{errno: syscall.EIO}
		}
		defer func() {
			_ = to.Close() // its content was read back
			_ = os.Remove(to.Name())
		}()
		n, err := copyTo(f, to)
		data, readErr := os.ReadFile(to.Name())
		if readErr != nil {
			return outcome{errno: syscall.EIO}
		}
		return outcome{data: data, n: n, errno: syscall.Errno(errnoNumber(err))}
	})
}

// differential runs the readers.
func differential(a differentialArgs) (differentialResult, error) {
	r := differentialResult{Done: map[string]int{}}
	var mu sync.Mutex
	errs := make([]error, a.Readers)
	var wg sync.WaitGroup
	for i := range a.Readers {
		wg.Go(func() {
			runtime.LockOSThread()
			done, err := differentialReader(a, rand.New(rand.NewPCG(a.Seed, uint64(i))))
			errs[i] = err
			mu.Lock()
			defer mu.Unlock()
			for kind, n := range done {
				r.Done[kind] += n
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, fmt.Errorf("seed %d: %w", a.Seed, err)
	}
	return r, nil
}

func differentialReader(a differentialArgs, rng *rand.Rand) (map[string]int, error) {
	done := map[string]int{}
	var p *pair
	for range a.Ops {
		if p == nil || rng.IntN(8) == 0 {
			if p != nil {
				_, _ = p.mount.Close(), p.local.Close() // only read
			}
			var err error
			if p, err = openPair(a, rng); err != nil {
				return done, err
			}
		}
		kind := differentialKinds[rng.IntN(len(differentialKinds))]
		p.did = false
		if err := kind.do(p); err != nil {
			return done, fmt.Errorf("%s: %w", kind.name, err)
		}
		if p.did {
			done[kind.name]++
		}
	}
	_, _ = p.mount.Close(), p.local.Close() // only read
	return done, nil
}

func openPair(a differentialArgs, rng *rand.Rand) (*pair, error) {
	path := a.Paths[rng.IntN(len(a.Paths))]
	mount, err := os.Open(filepath.Join(a.Mount, path))
	if err != nil {
		return nil, err
	}
	local, err := os.Open(filepath.Join(a.Local, path))
	if err != nil {
		return nil, err
	}
	info, err := local.Stat()
	if err != nil {
		return nil, err
	}
	return &pair{path: path, mount: mount, local: local, size: info.Size(), rng: rng, scratch: a.Scratch}, nil
}
