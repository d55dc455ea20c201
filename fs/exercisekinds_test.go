package fs

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// exerciseKind is a way to change or read a file.
type exerciseKind struct {
	name  string
	needs string // an asyncIO
	// direct says that it needs O_DIRECT.
	direct bool
	do     func(x *exerciser, f *twin) error
}

// transfers is a kind that reads or writes a window of a file.
func transfers(name string, write, direct bool, do func(x *exerciser, fd int, p []byte, off int64) (int, error)) exerciseKind {
	block := int64(1)
	if direct {
		block = exerciseBlock
	}
	return exerciseKind{name: name, direct: direct, do: func(x *exerciser, f *twin) error {
		off, n, err := x.window(f, block)
		if err != nil {
			return err
		}
		x.note(name, f.name, " ", n, " at ", off)
		if write {
			x.fill(n)
		}
		return x.both(!write, func(side int) (int, error) {
			fd := f.open[side]
			if direct {
				fd = f.direct[side]
			}
			return do(x, fd, x.buffer[side][:n], off)
		})
	}}
}

// asynchronous is such a kind by io_submit or io_uring.
func asynchronous(with string, write, direct bool) exerciseKind {
	name := with + " read"
	if write {
		name = with + " write"
	}
	if direct {
		name += " directly"
	}
	k := transfers(name, write, direct, func(x *exerciser, fd int, p []byte, off int64) (int, error) {
		return x.async[with].do(write, fd, p, off)
	})
	k.needs = with
	return k
}

// allocates is a kind that calls fallocate(2).
func allocates(name string, mode uint32) exerciseKind {
	return exerciseKind{name: name, do: func(x *exerciser, f *twin) error {
		off, n, err := x.window(f, 1)
		if err != nil {
			return err
		}
		x.note(name, f.name, " ", n, " at ", off)
		return x.both(false, func(side int) (int, error) { return 0, unix.Fallocate(f.open[side], mode, off, int64(n)) })
	}}
}

// copies is a kind that copies from one file to another, or to another place of the same.
func copies(name string, do func(to, from int, toOff, fromOff int64, n int) (int, error)) exerciseKind {
	return exerciseKind{name: name, do: func(x *exerciser, f *twin) error {
		from := x.files[x.rng.IntN(len(x.files))]
		if !from.there {
			return nil
		}
		fromOff, n, err := x.window(from, 1)
		if err != nil {
			return err
		}
		toOff, _, err := x.window(f, 1)
		if err != nil {
			return err
		}
		if from == f && toOff < fromOff+int64(n) && fromOff < toOff+int64(n) {
			return nil // what a copy onto itself comes to is not promised
		}
		x.note(name, from.name, " ", n, " at ", fromOff, " to ", f.name, " at ", toOff)
		return x.both(false, func(side int) (total int, err error) {
			for total < n {
				moved, err := do(f.open[side], from.open[side], toOff+int64(total), fromOff+int64(total), n-total)
				if err != nil || moved == 0 {
					return total, err
				}
				total += moved
			}
			return total, nil
		})
	}}
}

// exerciseKinds are the kinds; one that is there twice is done more often.
var exerciseKinds = slices.Concat([]exerciseKind{
	transfers("read", false, false, func(_ *exerciser, fd int, p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) }),
	transfers("write", true, false, func(_ *exerciser, fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }),
	transfers("read directly", false, true, func(_ *exerciser, fd int, p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) }),
	transfers("write directly", true, true, func(_ *exerciser, fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }),
	transfers("write in pieces", true, false, func(_ *exerciser, fd int, p []byte, off int64) (int, error) {
		return unix.Pwritev(fd, [][]byte{p[:len(p)/3], p[len(p)/3:]}, off)
	}),
	asynchronous("io_submit", false, false), asynchronous("io_submit", true, false),
	asynchronous("io_submit", false, true), asynchronous("io_submit", true, true),
	asynchronous("io_uring", false, false), asynchronous("io_uring", true, false),
	asynchronous("io_uring", false, true), asynchronous("io_uring", true, true),
	allocates("allocate", 0),
	allocates("allocate beyond the end", unix.FALLOC_FL_KEEP_SIZE),
	allocates("punch a hole", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE),
	allocates("zero a range", unix.FALLOC_FL_ZERO_RANGE),
	allocates("zero a range within", unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE),
	copies("copy_file_range", func(to, from int, toOff, fromOff int64, n int) (int, error) {
		return unix.CopyFileRange(from, &fromOff, to, &toOff, n, 0)
	}),
	copies("sendfile", func(to, from int, toOff, fromOff int64, n int) (int, error) {
		if _, err := unix.Seek(to, toOff, unix.SEEK_SET); err != nil {
			return 0, err
		}
		return unix.Sendfile(to, from, &fromOff, n)
	}),
	{name: "read through a mapping", do: func(x *exerciser, f *twin) error { return x.throughMapping(f, false) }},
	{name: "write through a mapping", do: func(x *exerciser, f *twin) error { return x.throughMapping(f, true) }},
	{name: "write through a mapping", do: func(x *exerciser, f *twin) error { return x.throughMapping(f, true) }},
	{name: "append", do: func(x *exerciser, f *twin) error {
		size, err := x.size(f)
		if err != nil || size > exerciseMost-exerciseOnce {
			return err
		}
		n := 1 + x.rng.IntN(exerciseOnce)
		x.note("append", f.name, " ", n)
		x.fill(n)
		return x.both(false, func(side int) (int, error) {
			fd, err := unix.Open(filepath.Join(x.args.Roots[side], f.name), unix.O_WRONLY|unix.O_APPEND, 0)
			if err != nil {
				return 0, err
			}
			n, err := unix.Write(fd, x.buffer[side][:n])
			return n, errors.Join(err, unix.Close(fd))
		})
	}},
	{name: "ftruncate", do: func(x *exerciser, f *twin) error {
		size := x.rng.Int64N(exerciseMost)
		x.note("ftruncate", f.name, " ", size)
		return x.both(false, func(side int) (int, error) { return 0, unix.Ftruncate(f.open[side], size) })
	}},
	{name: "truncate", do: func(x *exerciser, f *twin) error {
		size := x.rng.Int64N(exerciseMost)
		x.note("truncate", f.name, " ", size)
		return x.both(false, func(side int) (int, error) {
			return 0, unix.Truncate(filepath.Join(x.args.Roots[side], f.name), size)
		})
	}},
	{name: "look for holes", do: func(x *exerciser, f *twin) error { return x.holes(f) }},
	{name: "look for holes", do: func(x *exerciser, f *twin) error { return x.holes(f) }},
	{name: "compare", do: func(x *exerciser, f *twin) error { return x.compare(f) }},
	{name: "compare", do: func(x *exerciser, f *twin) error { return x.compare(f) }},
	{name: "fsync", do: func(x *exerciser, f *twin) error {
		x.note("fsync", f.name)
		return x.both(false, func(side int) (int, error) { return 0, unix.Fsync(f.open[side]) })
	}},
	{name: "drop pages", do: func(x *exerciser, f *twin) error {
		x.note("drop pages", f.name)
		x.did = true
		return unix.Fadvise(f.open[0], 0, 0, unix.FADV_DONTNEED)
	}},
	{name: "reopen", do: func(x *exerciser, f *twin) error {
		x.note("reopen", f.name)
		x.did = true
		if err := x.shut(f); err != nil {
			return err
		}
		if x.rng.IntN(4) == 0 {
			return x.reopen(f, unix.O_TRUNC)
		}
		return x.reopen(f, 0)
	}},
	{name: "rename", do: func(x *exerciser, f *twin) error {
		name := f.name + "'"
		if len(name) > 20 {
			name = f.name[:len("file0")]
		}
		x.note("rename", f.name)
		err := x.both(false, func(side int) (int, error) {
			return 0, unix.Rename(filepath.Join(x.args.Roots[side], f.name), filepath.Join(x.args.Roots[side], name))
		})
		f.name = name
		return err
	}},
	{name: "rename over", do: func(x *exerciser, f *twin) error {
		over := x.files[x.rng.IntN(len(x.files))]
		if over == f || !over.there {
			return nil
		}
		x.note("rename", f.name, " over ", over.name)
		err := x.both(false, func(side int) (int, error) {
			return 0, unix.Rename(filepath.Join(x.args.Roots[side], f.name), filepath.Join(x.args.Roots[side], over.name))
		})
		// What was there is open still, and as it was.
		if err = errors.Join(err, x.compare(over), x.shut(over)); err != nil {
			return err
		}
		f.name, over.name, over.there = over.name, f.name, false
		return nil
	}},
	{name: "unlink", do: func(x *exerciser, f *twin) error {
		x.note("unlink", f.name)
		err := x.both(false, func(side int) (int, error) {
			return 0, unix.Unlink(filepath.Join(x.args.Roots[side], f.name))
		})
		f.there = false
		return errors.Join(err, x.compare(f), x.shut(f))
	}},
})

// throughMapping reads or writes a part of a file through a shared mapping.
func (x *exerciser) throughMapping(f *twin, write bool) error {
	size, err := x.size(f)
	if err != nil || size == 0 {
		return err
	}
	off := x.rng.Int64N(size)
	n := int(min(1+x.rng.Int64N(exerciseOnce), size-off))
	sync := x.rng.IntN(2) == 0
	x.note("mapping", f.name, " ", n, " at ", off, " ", write, " ", sync)
	if write {
		x.fill(n)
	}
	return x.both(!write, func(side int) (int, error) {
		skip := off % exerciseBlock
		m, err := unix.Mmap(f.open[side], off-skip, n+int(skip), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return 0, err
		}
		if !write {
			copy(x.buffer[side], m[skip:])
		} else if copy(m[skip:], x.buffer[side][:n]); sync {
			err = unix.Msync(m, unix.MS_SYNC)
		}
		return n, errors.Join(err, unix.Munmap(m))
	})
}

// holes checks what the mount says of holes: that it may say more or less than the local
// disk, but what it passes over must be zeros, and at the end both say the same.
func (x *exerciser) holes(f *twin) error {
	size, err := x.size(f)
	if err != nil {
		return err
	}
	off := x.rng.Int64N(size + exerciseBlock)
	x.note("holes", f.name, " at ", off)
	x.did = off < size
	var data, hole [2]int64
	var errs [2]error
	for side, fd := range f.open {
		data[side], errs[side] = unix.Seek(fd, off, unix.SEEK_DATA)
		var failed error
		hole[side], failed = unix.Seek(fd, off, unix.SEEK_HOLE)
		switch past := off >= size; {
		case past != (failed != nil), past && (errorNumber(failed) != unix.ENXIO || errorNumber(errs[side]) != unix.ENXIO):
			return fmt.Errorf("%w: at %d of %d the descriptor %d says %w and %w", errExercise, off, size, side, errs[side], failed)
		case !past && (hole[side] < off || hole[side] > size):
			return fmt.Errorf("%w: at %d of %d the descriptor %d has a hole at %d", errExercise, off, size, side, hole[side])
		}
		if off >= size {
			continue
		}
		end := data[side]
		if errorNumber(errs[side]) == unix.ENXIO {
			end = size // nothing but a hole follows
		} else if errs[side] != nil || end < off || end > size {
			return fmt.Errorf("%w: at %d of %d the descriptor %d has data at %d, %w", errExercise, off, size, side, end, errs[side])
		}
		p := x.buffer[side][:end-off]
		if n, err := unix.Pread(f.open[1], p, off); err != nil || n != len(p) {
			return fmt.Errorf("read: %d, %w", n, err)
		}
		if slices.ContainsFunc(p, func(b byte) bool { return b != 0 }) {
			return fmt.Errorf("%w: the descriptor %d passes over data from %d to %d", errExercise, side, off, end)
		}
	}
	return nil
}
