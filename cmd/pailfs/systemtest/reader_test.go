package systemtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readerRole is the role in which this program reads a mount and checks what it
// gets.
const readerRole = "reader"

// The ways to read a file.
const (
	sequential = "sequential" // from the beginning to the end, in pieces of any size
	random     = "random"     // pieces anywhere
	mapped     = "mapped"     // pages of a mapping, anywhere
	whole      = "whole"      // a mapping from the beginning to the end
	reopened   = "reopened"   // opened, read a little, closed
)

var allKinds = []string{sequential, random, mapped, whole, reopened}

// file is one name and the versions that it may show.
type file struct {
	Key      string
	Versions []version
}

// job is what a process of readers is to do. It ends when each reader has made
// Reads of them, or when its standard input ends.
type job struct {
	Root    string
	Files   []file
	Readers int
	Kinds   []string
	// Reads is how many times each reader reads a file in one of the ways; 0 means
	// until it is told to stop.
	Reads int
	Seed  uint64
	// EachOnce lets the readers divide the files among them and read each once, in
	// each of the ways.
	EachOnce bool
	// Doubtful says that the store damages content. What a large object's ranges
	// hold is then known when all of it has come, so only a file that was read from
	// its beginning to its end without an error must be right.
	Doubtful bool
}

// tally is what the readers met.
type tally struct {
	Opens, Reads int
	Bytes        int64
	// Errors counts failures by what failed and its errno.
	Errors map[string]int
	// Wrong says what bytes were not those of one version.
	Wrong []string
	// Slowest is the longest call, and SlowestCall which it was.
	Slowest     time.Duration
	SlowestCall string
	// Gone says that the daemon went away.
	Gone bool
}

func (t *tally) add(o tally) {
	t.Opens += o.Opens
	t.Reads += o.Reads
	t.Bytes += o.Bytes
	if t.Errors == nil {
		t.Errors = map[string]int{}
	}
	for what, n := range o.Errors {
		t.Errors[what] += n
	}
	t.Wrong = append(t.Wrong, o.Wrong...)
	if o.Slowest > t.Slowest {
		t.Slowest, t.SlowestCall = o.Slowest, o.SlowestCall
	}
	t.Gone = t.Gone || o.Gone
}

// maxWrong is how many wrong reads a reader tells of before it stops.
const maxWrong = 3

// readerMain is the program in the role of readers.
func readerMain() {
	debug.SetGCPercent(400)
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var j job
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "job:", err)
		os.Exit(1)
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop.Store(true)
	}()
	if err := json.NewEncoder(os.Stdout).Encode(j.run(&stop)); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func (j *job) run(stop *atomic.Bool) tally {
	var all tally
	var mu sync.Mutex
	var readers sync.WaitGroup
	for i := range j.Readers {
		readers.Go(func() {
			r := &reader{job: j, stop: stop, rng: rand.New(rand.NewPCG(j.Seed, uint64(i))), buf: make([]byte, 3<<20)}
			r.tally.Errors = map[string]int{}
			if j.EachOnce {
				for at := i; at < len(j.Files) && !r.done(); at += j.Readers {
					for _, kind := range j.Kinds {
						r.read(&j.Files[at], kind)
					}
				}
			} else {
				for n := 0; (j.Reads == 0 || n < j.Reads) && !r.done(); n++ {
					r.read(&j.Files[r.rng.IntN(len(j.Files))], j.Kinds[r.rng.IntN(len(j.Kinds))])
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(r.tally)
		})
	}
	readers.Wait()
	return all
}

// reader is one of them.
type reader struct {
	job  *job
	stop *atomic.Bool
	rng  *rand.Rand
	buf  []byte
	// cut is the name under which the last call is counted if it failed with EIO.
	cut string
	tally
}

func (r *reader) done() bool { return r.stop.Load() || r.Gone || len(r.Wrong) >= maxWrong }

// timed runs a call and remembers the slowest.
func (r *reader) timed(what string, call func() error) error {
	begin := time.Now()
	err := call()
	if took := time.Since(begin); took > r.Slowest {
		r.Slowest, r.SlowestCall = took, what
	}
	if err == nil {
		r.cut = ""
		return nil
	}
	verb, _, _ := strings.Cut(what, " ")
	r.failed(verb, err)
	return err
}

// failed counts a failure. The call before the one that finds the daemon gone may have failed with
// EIO: so the kernel answers a request that it was copying when the daemon was killed
// (fuse_dev_do_read and fuse_dev_do_write in fs/fuse/dev.c).
func (r *reader) failed(verb string, err error) {
	if errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
		r.Gone = true
		if r.cut != "" {
			r.Errors[r.cut]--
			if r.Errors[r.cut] == 0 {
				delete(r.Errors, r.cut)
			}
			r.cut = ""
		}
		return
	}
	r.cut = ""
	if errors.Is(err, unix.EIO) {
		r.cut = verb + " EIO"
	}
	name := err.Error()
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		name = unix.ErrnoName(errno)
	}
	r.Errors[verb+" "+name]++
}

// read opens a file and reads it in one way. Whatever is read through one open
// file must be of one version, which the first bytes tell.
func (r *reader) read(f *file, kind string) {
	path := filepath.Join(r.job.Root, f.Key)
	var fd int
	if r.timed("open "+f.Key, func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}) != nil {
		return
	}
	r.Opens++
	defer unix.Close(fd)
	var st unix.Stat_t
	if r.timed("stat "+f.Key, func() error { return unix.Fstat(fd, &st) }) != nil {
		return
	}
	o := &openFile{reader: r, file: f, fd: fd, size: st.Size, firm: !r.job.Doubtful || st.Size <= 1<<20}
	for _, v := range f.Versions {
		if v.Size == st.Size {
			o.may = append(o.may, v)
		}
	}
	if len(o.may) == 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%q has %d bytes, which is no version of it", f.Key, st.Size))
		return
	}
	complete := false
	switch kind {
	case sequential:
		complete = o.sequential()
	case random:
		o.random(10, 200_000)
	case reopened:
		o.random(1, 5000)
	case mapped, whole:
		complete = o.mapped(kind == whole)
	}
	if complete && o.doubt != "" {
		r.Wrong = append(r.Wrong, "read to the end without an error: "+o.doubt)
	}
}

// openFile is an open file and the versions that it can still be.
type openFile struct {
	*reader
	file *file
	fd   int
	size int64
	may  []version
	// firm says that every byte must be right, doubt what was not if not.
	firm  bool
	doubt string
}

// check compares bytes with the versions that the file can be. It reports whether
// reading makes sense any longer.
func (o *openFile) check(p []byte, off int64) bool {
	o.Reads++
	o.Bytes += int64(len(p))
	still := o.may[:0:0]
	for _, v := range o.may {
		if v.wrong(p, off) < 0 {
			still = append(still, v)
		}
	}
	if len(still) == 0 && !o.firm {
		if o.doubt == "" {
			o.doubt = o.may[0].explain(p, off, o.file.Versions)
		}
		return true
	}
	if len(still) == 0 {
		o.Wrong = append(o.Wrong, o.may[0].explain(p, off, o.file.Versions))
		return false
	}
	o.may = still
	return true
}

// pread reads at most n bytes at off. It reports how many came, and whether
// reading makes sense any longer.
func (o *openFile) pread(n int, off int64) (int, bool) {
	n = min(n, len(o.buf))
	got := 0
	if o.timed(fmt.Sprintf("read %s at %d", o.file.Key, off), func() (err error) {
		for {
			got, err = unix.Pread(o.fd, o.buf[:n], off)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}) != nil {
		return 0, false
	}
	want := int(max(min(int64(n), o.size-off), 0))
	switch {
	case got == 0 && want > 0, got > want:
		o.Wrong = append(o.Wrong, fmt.Sprintf("%q of %d bytes: %d bytes at %d, asked for %d", o.file.Key, o.size, got, off, n))
		return 0, false
	}
	return got, o.check(o.buf[:got], off)
}

// sequential reports whether the end was reached.
func (o *openFile) sequential() bool {
	for off := int64(0); !o.done(); {
		n := 1 + o.rng.IntN(4096)
		if o.rng.IntN(2) == 0 {
			n = 1 + o.rng.IntN(len(o.buf))
		}
		got, ok := o.pread(n, off)
		if !ok || got == 0 {
			return ok
		}
		off += int64(got)
	}
	return false
}

func (o *openFile) random(times, most int) {
	for range times {
		if o.done() {
			return
		}
		if _, ok := o.pread(1+o.rng.IntN(most), o.rng.Int64N(o.size+1)); !ok {
			return
		}
	}
}

// errFault is what a page of a mapping that cannot be had gives.
var errFault = errors.New("SIGBUS")

// mapped reads through a mapping, and reports whether it read all of it.
func (o *openFile) mapped(all bool) bool {
	if o.size == 0 {
		return true
	}
	var m []byte
	if o.timed("mmap "+o.file.Key, func() (err error) {
		m, err = unix.Mmap(o.fd, 0, int(o.size), unix.PROT_READ, unix.MAP_SHARED)
		return err
	}) != nil {
		return false
	}
	defer unix.Munmap(m)
	touch := func(off int64, n int) bool {
		p := o.buf[:min(int64(n), o.size-off, int64(len(o.buf)))]
		if o.timed(fmt.Sprintf("fault %s at %d", o.file.Key, off), func() error { return copyMapped(p, m[off:]) }) != nil {
			o.Gone = o.Gone || o.gone()
			return false
		}
		return o.check(p, off)
	}
	if all {
		for off := int64(0); off < o.size && !o.done(); off += 1 << 20 {
			if !touch(off, 1<<20) {
				return false
			}
		}
		return !o.done()
	}
	for range 10 {
		if o.done() || !touch(o.rng.Int64N(o.size), 1+o.rng.IntN(20_000)) {
			return false
		}
	}
	return false
}

// gone reports whether the daemon is no more.
func (o *openFile) gone() bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(o.fd, &st)
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// copyMapped copies from a mapping, and returns a page that faults as an error.
func copyMapped(to, from []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = errFault
		}
	}()
	copy(to, from)
	return nil
}

// readers is a running process of readers.
type readers struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	result chan tally
	over   bool
}

// start starts the readers.
func (j job) start(t *testing.T) *readers {
	t.Helper()
	r := &readers{t: t, cmd: exec.Command("/proc/self/exe"), result: make(chan tally, 1)}
	r.cmd.Env = append(os.Environ(), "PAILFS_TEST_ROLE="+readerRole)
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.result)
		var told tally
		err := json.NewDecoder(out).Decode(&told)
		if waitErr := r.cmd.Wait(); err == nil && waitErr == nil {
			r.result <- told
		}
	}()
	t.Cleanup(func() {
		if !r.over {
			_ = r.cmd.Process.Kill() // it may have ended
		}
	})
	if err := json.NewEncoder(r.stdin).Encode(j); err != nil {
		t.Fatal(err)
	}
	return r
}

// tell makes the readers stop after what they are doing.
func (r *readers) tell() { _ = r.stdin.Close() }

// patience is how long anything may take before it counts as hanging. Nothing is
// asserted on time.
const patience = 3 * time.Minute

// wait returns what the readers met. A daemon that lets them hang shows what it
// is doing.
func (r *readers) wait(d *daemon) tally {
	r.t.Helper()
	select {
	case told, ok := <-r.result:
		r.over = true
		if !ok {
			r.t.Fatal("the readers died")
		}
		return told
	case <-time.After(patience):
		d.dump()
		r.t.Fatal("the readers hang")
		return tally{}
	}
}

// sound fails the test if bytes were wrong, or if calls failed otherwise than
// tolerated: an errno for every call, or "read EIO" for one.
func (t tally) sound(test *testing.T, what string, tolerated ...string) {
	test.Helper()
	for _, wrong := range t.Wrong {
		test.Errorf("%s: WRONG BYTES: %s", what, wrong)
	}
	for err, n := range t.Errors {
		_, errno, _ := strings.Cut(err, " ")
		if !slices.Contains(tolerated, errno) && !slices.Contains(tolerated, err) {
			test.Errorf("%s: %d times %s", what, n, err)
		}
	}
}

// TestOneErrorIsOfTheKill: EIO is excused only right before the daemon is found gone.
func TestOneErrorIsOfTheKill(t *testing.T) {
	call := func(r *reader, err error) { _ = r.timed("open x", func() error { return err }) }
	for _, row := range []struct {
		calls []error
		want  map[string]int
	}{
		{[]error{unix.EIO, unix.ENOTCONN}, map[string]int{}},
		{[]error{unix.EIO, unix.EIO, unix.ECONNABORTED}, map[string]int{"open EIO": 1}},
		{[]error{unix.EIO, nil, unix.ENOTCONN}, map[string]int{"open EIO": 1}},
		{[]error{unix.EIO}, map[string]int{"open EIO": 1}},
		{[]error{unix.EACCES, unix.ENOTCONN}, map[string]int{"open EACCES": 1}},
	} {
		r := &reader{tally: tally{Errors: map[string]int{}}}
		for _, err := range row.calls {
			call(r, err)
		}
		if !maps.Equal(r.Errors, row.want) {
			t.Errorf("%v: %v, want %v", row.calls, r.Errors, row.want)
		}
	}
}
