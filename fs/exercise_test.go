package fs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// exerciseOperations is how many operations each process does; PAILFS_FS_EXERCISE in the
// environment is another number, for hours.
const exerciseOperations = 500

// TestRandomChangesOfContentAsOnALocalDisk changes files in all the ways that Linux has,
// at random, by three processes, and does the same on the local disk. Every outcome is
// compared, and from time to time all content; at the end also that of the bucket.
// PAILFS_TEST_SEED repeats a run.
func TestRandomChangesOfContentAsOnALocalDisk(t *testing.T) {
	seed := testSeed()
	operations := exerciseOperations
	if testing.Short() {
		operations /= 3
	}
	if n, err := strconv.Atoi(os.Getenv("PAILFS_FS_EXERCISE")); err == nil && n > 0 {
		operations = n
	}
	for _, mode := range []Choice{On, Off} {
		t.Run("passthrough "+mode.String(), func(t *testing.T) {
			t.Logf("PAILFS_TEST_SEED=%d", seed)
			w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: mode, PassthroughMin: 1}})
			local := localDir(t)
			var workers sync.WaitGroup
			var mu sync.Mutex
			done, leftOut := map[string]int{}, map[string]string{}
			for i := range uint64(3) {
				name := fmt.Sprint("worker", i)
				must(t, os.Mkdir(w.path(name), 0o755))
				must(t, os.Mkdir(filepath.Join(local, name), 0o755))
				workers.Go(func() {
					var r exerciseResult
					args := exerciseArgs{Roots: [2]string{w.path(name), filepath.Join(local, name)}, Seed: seed, Worker: i, Operations: operations}
					if err := tryReader("exercise", args, &r); err != nil {
						t.Errorf("PAILFS_TEST_SEED=%d: %v", seed, err)
					}
					mu.Lock()
					defer mu.Unlock()
					for kind, n := range r.Done {
						done[kind] += n
					}
					maps.Copy(leftOut, r.LeftOut)
				})
			}
			workers.Wait()
			t.Logf("done: %v", done)
			if !testing.Short() { // there are enough for each kind to come
				wantAllKinds(t, done, leftOut)
			}
			compareTrees(t, w.dir, local)
			w.drain(t)
			compareTrees(t, w.dir, local)
			compareBucket(t, w.Emulator, local)
		})
	}
}

// wantAllKinds fails the test if a kind was never done, or only ever failed. What the machine
// does not permit elsewhere either is left out, and said.
func wantAllKinds(t *testing.T, done map[string]int, leftOut map[string]string) {
	t.Helper()
	for what, why := range leftOut {
		fmt.Fprintf(os.Stderr, "LEFT OUT of %s: %s, which this machine does not permit: %s\n", t.Name(), what, why)
	}
	for _, kind := range exerciseKinds {
		_, without := leftOut[kind.needs]
		if _, buffered := leftOut["O_DIRECT"]; kind.direct && buffered {
			without = true
		}
		if done[kind.name] == 0 && !without {
			t.Errorf("%s: nothing came of any", kind.name)
		}
	}
}

type exerciseArgs struct {
	Roots        [2]string // on the mount, and on the local disk
	Seed, Worker uint64
	Operations   int
}

type exerciseResult struct {
	// Done counts the operations of which something came, LeftOut says which the machine does
	// not permit, and why.
	Done    map[string]int
	LeftOut map[string]string
}

const (
	// exerciseMost is the largest size of a file, exerciseOnce the most that is read or
	// written at once, exerciseBlock what O_DIRECT goes by.
	exerciseMost  = 512 << 10
	exerciseOnce  = 96 << 10
	exerciseBlock = 4096
)

// exerciser is one process.
type exerciser struct {
	args   exerciseArgs
	rng    *rand.Rand
	async  map[string]asyncIO
	buffer [2][]byte // outside the heap
	// block is what O_DIRECT is done by, 0 where the machine has none.
	block int64
	files []*twin
	log   []string
	// did says that the operation was done and did not only fail alike.
	did    bool
	result exerciseResult
}

// twin is one file, on the mount and on the local disk.
type twin struct {
	name string
	// open are descriptors, direct such with O_DIRECT, each on both.
	open, direct [2]int
	there        bool
}

var errExercise = errors.New("the mount differs from the local disk")

// exercise is one process of TestRandomChangesOfContentAsOnALocalDisk.
func exercise(a exerciseArgs) (exerciseResult, error) {
	x := &exerciser{
		args: a, rng: rand.New(rand.NewPCG(a.Seed, a.Worker)), async: map[string]asyncIO{},
		result: exerciseResult{Done: map[string]int{}, LeftOut: map[string]string{}},
	}
	for i := range x.buffer {
		var err error
		if x.buffer[i], err = offHeap(exerciseMost + exerciseOnce); err != nil {
			return x.result, err
		}
	}
	for name, open := range map[string]func() (asyncIO, error){"io_submit": newAIO, "io_uring": newUring} {
		io, err := open()
		if err != nil {
			x.result.LeftOut[name] = err.Error()
			continue
		}
		defer func() { _ = io.close() }() // nothing is under way
		x.async[name] = io
	}
	if err := x.probe(); err != nil {
		x.result.LeftOut["O_DIRECT"] = err.Error()
	}
	for i := range 3 {
		x.files = append(x.files, &twin{name: fmt.Sprint("file", i)})
	}
	for i := range a.Operations {
		if err := x.step(); err != nil {
			return x.result, fmt.Errorf("operation %d of process %d: %w; the last: %q", i, a.Worker, err, x.log[max(0, len(x.log)-15):])
		}
	}
	for _, f := range x.files {
		if !f.there {
			continue
		}
		if err := errors.Join(x.compare(f), x.shut(f)); err != nil {
			return x.result, fmt.Errorf("at the end of process %d: %w; the last: %q", a.Worker, err, x.log[max(0, len(x.log)-15):])
		}
	}
	return x.result, nil
}

// step does one operation.
func (x *exerciser) step() error {
	f := x.files[x.rng.IntN(len(x.files))]
	if !f.there {
		x.note("create", f.name)
		return x.create(f)
	}
	kind := exerciseKinds[x.rng.IntN(len(exerciseKinds))]
	if kind.needs != "" && x.async[kind.needs] == nil || kind.direct && x.block == 0 {
		return nil
	}
	x.did = false
	if err := kind.do(x, f); err != nil {
		return fmt.Errorf("%s of %s: %w", kind.name, f.name, err)
	}
	if x.did {
		x.result.Done[kind.name]++
	}
	return nil
}

func (x *exerciser) note(doing string, args ...any) {
	x.log = append(x.log, doing+" "+fmt.Sprint(args...))
}

// create makes a file and opens it.
func (x *exerciser) create(f *twin) error {
	f.there = true
	return x.reopen(f, unix.O_CREAT)
}

// probe finds out whether the local disk has O_DIRECT.
func (x *exerciser) probe() error {
	path := filepath.Join(x.args.Roots[1], "probe")
	defer func() { _ = unix.Unlink(path) }() // it may have been made also where it was not opened
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	x.block = exerciseBlock
	return unix.Close(fd)
}

// reopen opens a file anew.
func (x *exerciser) reopen(f *twin, flags int) error {
	var errs [2]error
	for side, root := range x.args.Roots {
		f.open[side], errs[side] = unix.Open(filepath.Join(root, f.name), unix.O_RDWR|flags, 0o644)
		if errs[side] == nil && x.block == 0 {
			f.direct[side], errs[side] = unix.Dup(f.open[side])
		} else if errs[side] == nil {
			f.direct[side], errs[side] = unix.Open(filepath.Join(root, f.name), unix.O_RDWR|unix.O_DIRECT, 0)
		}
	}
	if errs[0] != nil || errs[1] != nil {
		return fmt.Errorf("open: %w, locally %w", errs[0], errs[1])
	}
	return nil
}

// shut closes the descriptors of a file.
func (x *exerciser) shut(f *twin) error {
	var errs []error
	for side := range f.open {
		errs = append(errs, unix.Close(f.open[side]), unix.Close(f.direct[side]))
	}
	return errors.Join(errs...)
}

// size returns the size of a file, which is the same on both.
func (x *exerciser) size(f *twin) (int64, error) {
	var sizes [2]int64
	for side, fd := range f.open {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, err
		}
		sizes[side] = st.Size
	}
	if sizes[0] != sizes[1] {
		return 0, fmt.Errorf("%w: it has %d bytes, locally %d", errExercise, sizes[0], sizes[1])
	}
	return sizes[0], nil
}

// both does the same on both and compares what comes of it: a number, an error, and the
// content of the buffers, as far as the number goes, if reads.
func (x *exerciser) both(reads bool, do func(side int) (int, error)) error {
	var n [2]int
	var errs [2]error
	for side := range n {
		n[side], errs[side] = do(side)
	}
	if n[0] != n[1] || errorNumber(errs[0]) != errorNumber(errs[1]) {
		return fmt.Errorf("%w: %d, %w, locally %d, %w", errExercise, n[0], errs[0], n[1], errs[1])
	}
	x.did = x.did || errs[0] == nil
	if reads && n[0] > 0 {
		return differs(x.buffer[0][:n[0]], x.buffer[1][:n[1]])
	}
	return nil
}

// errorNumber is the errno of err, 0 if there is none.
func errorNumber(err error) syscall.Errno {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno
}

// differs says where two contents differ.
func differs(mount, local []byte) error {
	if bytes.Equal(mount, local) {
		return nil
	}
	at := 0
	for at < min(len(mount), len(local)) && mount[at] == local[at] {
		at++
	}
	return fmt.Errorf("%w: of %d bytes, locally %d, the first that differs is at %d: %x, locally %x",
		errExercise, len(mount), len(local), at, some(mount, at), some(local, at))
}

// compare compares all of a file.
func (x *exerciser) compare(f *twin) error {
	size, err := x.size(f)
	if err != nil {
		return err
	}
	return x.both(true, func(side int) (int, error) {
		return unix.Pread(f.open[side], x.buffer[side][:size+1], 0)
	})
}

// fill puts the same random bytes into both buffers.
func (x *exerciser) fill(n int) {
	p := x.buffer[0][:n]
	for i := range p {
		p[i] = byte(x.rng.Uint32())
	}
	copy(x.buffer[1], p)
}

// window picks a part of a file, which may lie beyond its end: at multiples of a block if
// aligned. A mapped one lies within.
func (x *exerciser) window(f *twin, block int64) (off int64, n int, err error) {
	size, err := x.size(f)
	if err != nil {
		return 0, 0, err
	}
	off = x.rng.Int64N(min(size+size/4+2*exerciseBlock, exerciseMost-exerciseOnce))
	n = 1 + x.rng.IntN(exerciseOnce)
	if x.rng.IntN(3) == 0 {
		n = 1 + x.rng.IntN(2*exerciseBlock)
	}
	off -= off % block
	if n = n - n%int(block); n == 0 {
		n = int(block)
	}
	return off, n, nil
}
