package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// told is an auditor that remembers.
type told struct {
	// full, if set, is whom Admit asks.
	full func(ctx context.Context) error
	mu   struct {
		sync.Mutex
		admitted int
		all      []Operation
	}
}

func (a *told) Process(tid uint32) *Process {
	pid, _ := ProcessOf(tid)
	return &Process{PID: pid}
}

func (a *told) Admit(ctx context.Context) error {
	if a.full != nil {
		if err := a.full(ctx); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.admitted++
	return nil
}

func (a *told) Done(op Operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if op.Verb != CloseFile {
		a.mu.admitted--
	}
	a.mu.all = append(a.mu.all, op)
}

// take returns what it was told, when all that was opened is closed.
func (a *told) take(t *testing.T) []Operation {
	t.Helper()
	var all []Operation
	eventually(t, "each open is closed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		open := 0
		for _, op := range a.mu.all {
			switch {
			case op.Verb == CloseFile:
				open--
			case op.Handle != 0:
				open++
			}
		}
		if open != 0 || a.mu.admitted != 0 {
			return false
		}
		all, a.mu.all = a.mu.all, nil
		return true
	})
	return all
}

// texts renders operations without what differs from run to run.
func texts(all []Operation) []string {
	var out []string
	for _, op := range all {
		words := []string{string(op.Verb), op.Path}
		add := func(set bool, format string, args ...any) {
			if set {
				words = append(words, fmt.Sprintf(format, args...))
			}
		}
		add(op.To != "", "to %s", op.To)
		add(op.Access != "", "for %s", op.Access)
		add(op.Truncated, "truncated")
		add(op.Name != "", "name %s", op.Name)
		add(op.Object.Key != "", "is %s", op.Object.Key)
		add(op.Replaced.Key != "", "over %s", op.Replaced.Key)
		if c := op.Change; c != nil {
			add(c.Size != nil, "size %d", ptr(c.Size))
			add(c.Mode != nil, "mode %o", ptr(c.Mode))
			add(c.UID != nil, "owner %d", ptr(c.UID))
			add(c.GID != nil, "group %d", ptr(c.GID))
			add(c.Mtime != nil, "mtime %d", ptr(c.Mtime).Unix())
		}
		add(op.Verb == CloseFile, "read %d written %d", op.Read, op.Written)
		add(op.Errno != 0, "%s", unix.ErrnoName(op.Errno))
		add(op.ByKernel, "by the kernel")
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func ptr[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// TestAuditIsToldOfEachOperation does each thing once, and compares what the auditor was told.
func TestAuditIsToldOfEachOperation(t *testing.T) {
	e := startStore(t)
	for _, key := range []string{"read", "removed", "moved", "replaced", "cut", "rewritten", "private", "dir/inside"} {
		e.Put(key, []byte("content"))
	}
	auditor := &told{}
	base := tempDir(t)
	must(t, os.Chmod(base, 0o711)) // others are to get to the mount
	w := mountWritten(t, e, writtenOptions{base: base, config: Config{Attrs: true, AllowOther: true, Passthrough: Off, FileMode: 0o644, Audit: auditor}})
	must(t, os.Chmod(w.path("private"), 0o600))
	must(t, os.Chmod(w.path("dir"), 0o700))
	auditor.take(t)
	fails := func(err error, want syscall.Errno) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	stranger := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("%s %v: %v: %s", name, args, err, out)
		}
	}
	for _, row := range []struct {
		name string
		do   func()
		want []string
	}{
		{"read", func() { readAll(t, w.path("read")) }, []string{"open /read for read is read", "close /read for read is read read 7 written 0"}},
		{
			"create and write", func() { must(t, os.WriteFile(w.path("new"), []byte("12345"), 0o640)) },
			[]string{"create /new for write truncated mode 640", "close /new for write size 5 read 0 written 5"},
		},
		{
			"write anew", func() { must(t, os.WriteFile(w.path("rewritten"), []byte("12"), 0o640)) },
			[]string{"open /rewritten for write truncated is rewritten", "close /rewritten for write size 2 read 0 written 2"},
		},
		{"truncate", func() { must(t, os.Truncate(w.path("cut"), 3)) }, []string{"truncate /cut is cut size 3"}},
		{"rename", func() { must(t, os.Rename(w.path("moved"), w.path("replaced"))) }, []string{"rename /moved to /replaced is moved over replaced"}},
		{
			"an exchange", func() {
				fails(unix.Renameat2(unix.AT_FDCWD, w.path("read"), unix.AT_FDCWD, w.path("cut"), unix.RENAME_EXCHANGE), unix.EINVAL)
			},
			[]string{"rename /read to /cut is read over cut EINVAL"},
		},
		{"unlink", func() { must(t, os.Remove(w.path("removed"))) }, []string{"unlink /removed is removed"}},
		{"mkdir", func() { must(t, os.Mkdir(w.path("d"), 0o750)) }, []string{"mkdir /d mode 750"}},
		{"rmdir of what is not empty", func() { fails(unix.Rmdir(w.path("dir")), unix.ENOTEMPTY) }, []string{"rmdir /dir ENOTEMPTY"}},
		{"rmdir", func() { must(t, unix.Rmdir(w.path("d"))) }, []string{"rmdir /d"}},
		{"symlink", func() { must(t, os.Symlink("read", w.path("l"))) }, []string{"symlink /l name read"}},
		{"link", func() { fails(os.Link(w.path("read"), w.path("hard")), unix.EPERM) }, []string{"link /hard EPERM"}},
		{"mknod", func() { must(t, unix.Mkfifo(w.path("fifo"), 0o600)) }, []string{"mknod /fifo mode 10600"}},
		{"mknod of a device", func() { fails(unix.Mknod(w.path("null"), unix.S_IFCHR|0o600, 0x103), unix.EPERM) }, []string{"mknod /null mode 20600 EPERM"}},
		{"chmod", func() { must(t, os.Chmod(w.path("read"), 0o640)) }, []string{"chmod /read is read mode 640"}},
		{"chown", func() { must(t, os.Chown(w.path("read"), 1, 2)) }, []string{"chown /read is read owner 1 group 2"}},
		{"utimens", func() { must(t, os.Chtimes(w.path("read"), time.Time{}, time.Unix(1000, 0))) }, []string{"utimens /read is read mtime 1000"}},
		{"setxattr", func() { must(t, unix.Setxattr(w.path("read"), "user.a", []byte("secret"), 0)) }, []string{"setxattr /read name user.a is read"}},
		{"removexattr", func() { must(t, unix.Removexattr(w.path("read"), "user.a")) }, []string{"removexattr /read name user.a is read"}},
		{"a stranger reads", func() { stranger("cat", w.path("private")) }, []string{"open /private for read is private EACCES by the kernel"}},
		{
			"a stranger writes", func() { stranger("dd", "if=/dev/null", "conv=notrunc", "of="+w.path("rewritten")) },
			[]string{"open /rewritten for write EACCES by the kernel"},
		},
		{"a stranger passes a directory", func() { stranger("cat", w.path("dir/inside")) }, []string{"open /dir for read EACCES by the kernel"}},
	} {
		// Publication changes what is known of versions.
		w.drain(t)
		row.do()
		got := auditor.take(t)
		// Which versions there are while what was written is on its way is chance.
		if diff := cmp.Diff(row.want, stripped(row.want, texts(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
		for _, op := range got {
			if op.Process.PID == 0 || op.Began.IsZero() || op.Took < 0 || strings.HasPrefix(row.name, "a stranger") != (op.UID == 1234) {
				t.Errorf("%s: %+v of process %d", row.name, op, op.Process.PID)
			}
		}
	}
}

// stripped takes the versions out of texts whose counterpart in want has none.
func stripped(want, got []string) []string {
	for i, text := range got {
		if i < len(want) && !strings.Contains(want[i], " is ") {
			before, after, found := strings.Cut(text, " is ")
			if found {
				_, rest, _ := strings.Cut(after, " ")
				got[i] = strings.TrimSpace(before + " " + rest)
			}
		}
	}
	return got
}

// TestAuditSaysWhatThePassthroughReads: the kernel reads by itself, which open and close tell.
func TestAuditSaysWhatThePassthroughReads(t *testing.T) {
	auditor := &told{}
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: On, PassthroughMin: 1, Audit: auditor}})
	must(t, os.WriteFile(w.path("f"), random(1, 1<<20), 0o644))
	readAll(t, w.path("f"))
	got := auditor.take(t)
	if len(got) != 4 {
		t.Fatalf("told of %v", texts(got))
	}
	for _, op := range got {
		if !op.Passthrough || op.Read != 0 || op.Written != 0 {
			t.Errorf("%s: passthrough %t, read %d, written %d", op.Verb, op.Passthrough, op.Read, op.Written)
		}
	}
	// The kernel releases a file some time after it was closed: another open may come before.
	closed := slices.IndexFunc(got, func(op Operation) bool { return op.Verb == CloseFile && op.Access == writeAccess })
	if closed < 0 {
		t.Fatalf("told of %v", texts(got))
	}
	if size := got[closed].Change; size == nil || ptr(size.Size) != 1<<20 {
		t.Errorf("%v: closed with %+v, want the size", texts(got), size)
	}
}

// TestAuditTellsOfWhatIsOpenAtTheEnd: a mount that is taken away by force closes what is open.
func TestAuditTellsOfWhatIsOpenAtTheEnd(t *testing.T) {
	auditor := &told{}
	e := startStore(t)
	e.Put("f", []byte("content"))
	w := mountWritten(t, e, writtenOptions{config: Config{Audit: auditor}})
	f, err := os.Open(w.path("f"))
	must(t, err)
	_ = unix.Unmount(w.dir, unix.MNT_FORCE) // aborts, and says that the mount is busy
	w.mount.Wait()
	must(t, f.Close())
	must(t, unix.Unmount(w.dir, 0))
	if got := texts(auditor.take(t)); len(got) != 2 || !strings.HasPrefix(got[1], "close /f for read") {
		t.Errorf("told of %q", got)
	}
}

// TestNothingIsDoneThatTheAuditDoesNotAdmit: who is killed while there is no room has done
// nothing.
func TestNothingIsDoneThatTheAuditDoesNotAdmit(t *testing.T) {
	waits := make(chan struct{}, 1)
	auditor := &told{}
	auditor.full = func(ctx context.Context) error {
		waits <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Audit: auditor}})
	cmd := exec.Command("mkdir", w.path("d"))
	must(t, cmd.Start())
	<-waits
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if _, err := os.Stat(w.path("d")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
	auditor.mu.Lock()
	defer auditor.mu.Unlock()
	if len(auditor.mu.all) != 0 {
		t.Errorf("told of %q", texts(auditor.mu.all))
	}
}

// TestAMountThatIsTakenAwayDoesNotWaitForItsAudit: the kernel has answered those who wait for room,
// and they live on.
func TestAMountThatIsTakenAwayDoesNotWaitForItsAudit(t *testing.T) {
	waits := make(chan struct{}, 1)
	auditor := &told{}
	auditor.full = func(ctx context.Context) error {
		waits <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Audit: auditor}})
	made := make(chan error)
	go func() { made <- os.Mkdir(w.path("d"), 0o755) }()
	<-waits
	_ = unix.Unmount(w.dir, unix.MNT_FORCE) // aborts, and may say that the mount is busy
	if err := <-made; err == nil {
		t.Error("the directory was made")
	}
	w.mount.Wait()
	if err := unix.Unmount(w.dir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}
