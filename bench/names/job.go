package names

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Pattern is how a tree is listed.
type Pattern string

// The patterns.
const (
	// Names reads the names of all directories, and keeps them, as os.listdir does.
	Names Pattern = "names"
	// Attributes asks for the attributes of every name as it is read.
	Attributes Pattern = "attributes"
	// Find runs find(1), which does the same.
	Find Pattern = "find"
)

// Job says what is to be listed and how.
type Job struct {
	Root    string  `json:"root"`
	Tree    Tree    `json:"tree"`
	Pattern Pattern `json:"pattern"`
}

// Outcome is what a job took.
type Outcome struct {
	Seconds float64 `json:"seconds"`
}

// The C library gives getdents a buffer of as many bytes as the directory says its
// blocks have, within these bounds.
const (
	leastBuffer = 32 << 10
	mostBuffer  = 1 << 20
)

// Run lists a tree, and checks that every name was there once.
func (j Job) Run(ctx context.Context) (Outcome, error) {
	if j.Pattern == Find {
		return j.find(ctx)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]byte, mostBuffer)
	found := make([][]string, j.Tree.Dirs)
	for d := range found {
		found[d] = make([]string, 0, j.Tree.Files)
	}
	start := time.Now()
	for d := range found {
		if err := j.list(&found[d], filepath.Join(j.Root, j.Tree.Dir(d)), buf); err != nil {
			return Outcome{}, err
		}
	}
	out := Outcome{Seconds: time.Since(start).Seconds()}
	for d := range found {
		if err := j.check(found[d]); err != nil {
			return Outcome{}, fmt.Errorf("list directory %d: %w", d, err)
		}
	}
	return out, nil
}

// check compares the names of one directory with what must be there.
func (j Job) check(found []string) error {
	if len(found) != j.Tree.Files {
		return fmt.Errorf("%d names, want %d", len(found), j.Tree.Files)
	}
	slices.Sort(found)
	for i, name := range found {
		if name != File(i) {
			return fmt.Errorf("name %d is %q, want %q", i, name, File(i))
		}
	}
	return nil
}

// list appends the names of a directory to found.
func (j Job) list(found *[]string, dir string, buf []byte) (err error) {
	fd, err := again(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fmt.Errorf("list %q: %w", dir, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("list %q: %w", dir, err)
	}
	buf = buf[:min(max(int(st.Blksize), leastBuffer), len(buf))]
	for {
		n, err := again(func() (int, error) { return unix.Getdents(fd, buf) })
		if err != nil {
			return fmt.Errorf("list %q: %w", dir, err)
		}
		if n == 0 {
			return nil
		}
		for p := buf[:n]; len(p) > 0; p = p[binary.NativeEndian.Uint16(p[16:]):] {
			name := p[19:binary.NativeEndian.Uint16(p[16:])]
			name = name[:slices.Index(name, 0)]
			if text := string(name); text != "." && text != ".." {
				*found = append(*found, text)
				if j.Pattern == Attributes {
					if err := stat(fd, text); err != nil {
						return fmt.Errorf("attributes of %q in %q: %w", text, dir, err)
					}
				}
			}
		}
	}
}

// stat asks for the attributes of a file.
func stat(fd int, name string) error {
	var st unix.Stat_t
	_, err := again(func() (int, error) { return 0, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("mode %o is that of no file", st.Mode)
	}
	return err
}

// again repeats a call that a signal of the runtime has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// find runs find(1), which prints a byte for each file whose size it has asked for.
func (j Job) find(ctx context.Context) (Outcome, error) {
	c := exec.CommandContext(ctx, "find", j.Root, "-type", "f", "-size", "-1000000k", "-printf", ".")
	counted := &counter{}
	c.Stdout = counted
	start := time.Now()
	if err := c.Run(); err != nil {
		return Outcome{}, fmt.Errorf("run %s: %w", c, err)
	}
	out := Outcome{Seconds: time.Since(start).Seconds()}
	if counted.n != j.Tree.All() {
		return Outcome{}, fmt.Errorf("%s found %d files, want %d", c, counted.n, j.Tree.All())
	}
	return out, nil
}

// counter counts bytes.
type counter struct{ n int }

// Write implements [io.Writer].
func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// Serve reads one job from in, carries it out and writes its outcome to out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var job Job
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	outcome, err := job.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(outcome)
}
