package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	pailfs "github.com/pailfs/pailfs/fs"
)

// patience bounds every wait; nothing is asserted on it.
const patience = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// read is a line that was read.
type read struct {
	V       int    `json:"v"`
	Seq     uint64 `json:"seq"`
	Op      string `json:"op"`
	Path    string `json:"path"`
	Records uint64 `json:"records"`
	Reason  string `json:"reason"`
	Code    string `json:"code"`
	Paths   []string
}

// readLines returns the lines of files, one after the other, and fails at one that is none.
func readLines(t *testing.T, paths ...string) (all []read) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(t, err)
		all = append(all, parse(t, text)...)
	}
	return all
}

func parse(t *testing.T, text []byte) (all []read) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var r read
		if err := json.Unmarshal(line, &r); err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			t.Fatalf("%v: %.200q", err, line)
		}
		all = append(all, r)
	}
	return all
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() }) // of a test that failed
	return l
}

// do records one operation on a path.
func do(l *Log, path string) {
	if l.Admit(context.Background()) == nil {
		l.Done(pailfs.Operation{Verb: pailfs.Unlink, Began: time.Now(), Path: path, Process: &pailfs.Process{}})
	}
}

// once fails unless each of n operations is there exactly once, in its worker's order, and the
// numbers of the lines have no gap.
func once(t *testing.T, lines []read, workers, n int) {
	t.Helper()
	next := make([]int, workers)
	for i, line := range lines {
		if line.Seq != uint64(i)+1 {
			t.Fatalf("line %d has the number %d", i, line.Seq)
		}
		if line.Op != string(pailfs.Unlink) {
			continue
		}
		var worker, i int
		if _, err := fmt.Sscanf(line.Path, "/%d/%d", &worker, &i); err != nil || next[worker] != i {
			t.Fatalf("%s comes where %d was to come: %v", line.Path, next[worker], err)
		}
		next[worker]++
	}
	for worker, got := range next {
		if got != n {
			t.Errorf("worker %d: %d of %d operations", worker, got, n)
		}
	}
}

// load lets workers do n operations each, beside what turn does.
func load(l *Log, workers, n int) *sync.WaitGroup {
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := range n {
				do(l, fmt.Sprintf("/%d/%d", worker, i))
			}
		})
	}
	return &running
}

// TestRotationUnderLoadLosesNothing moves the file away again and again while operations come.
func TestRotationUnderLoadLosesNothing(t *testing.T) {
	const workers, each, turns = 4, 5000, 5
	path := filepath.Join(t.TempDir(), "audit")
	l := open(t, Config{To: path, Full: Block, queued: 256, linger: time.Millisecond})
	running := load(l, workers, each)
	var files []string
	for i := range turns {
		moved := fmt.Sprintf("%s.%d", path, i)
		must(t, os.Rename(path, moved))
		files = append(files, moved)
		l.Reopen()
		eventually(t, "the file is opened again", func() bool { return l.Status().Reopened == uint64(i)+1 })
	}
	l.Reopen() // without a rotation it is the same file
	running.Wait()
	must(t, l.Close())
	once(t, readLines(t, append(files, path)...), workers, each)
	if s := l.Status(); s.Dropped != 0 || s.Written < workers*each {
		t.Errorf("%+v", s)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// disk mounts a small file system and returns a path on it.
func disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return dir
}

// TestFullDiskThatBlocks: operations wait until there is room, and each is recorded once, with
// no line torn.
func TestFullDiskThatBlocks(t *testing.T) {
	const workers, each = 4, 1000
	dir := disk(t, "128k")
	path := filepath.Join(dir, "audit")
	l := open(t, Config{To: path, Full: Block, queued: 64, linger: time.Millisecond})
	running := load(l, workers, each)
	eventually(t, "operations wait", func() bool { s := l.Status(); return s.Waiting > 0 && s.Error != "" })
	s := l.Status()
	if !strings.Contains(s.Error, "no space left") || s.Since.IsZero() || s.Failures == 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Admit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("who is killed while waiting gets %v", err)
	}
	readLines(t, path) // no line is torn
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"))
	running.Wait()
	must(t, l.Close())
	once(t, readLines(t, path), workers, each)
	if s := l.Status(); s.Error != "" || s.Dropped != 0 {
		t.Errorf("afterwards %+v", s)
	}
}

// TestNobodyWaitsForRoomOfAMountThatHasEnded: a call that was answered long after its request, and
// so is interrupted by nobody, waits no longer; nor does what comes then.
func TestNobodyWaitsForRoomOfAMountThatHasEnded(t *testing.T) {
	l := open(t, Config{To: filepath.Join(disk(t, "4k"), "audit"), Full: Block, queued: 4, linger: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for l.Admit(ctx) == nil {
			l.Done(pailfs.Operation{Verb: pailfs.Mkdir, Path: "/x"})
		}
	}()
	eventually(t, "the disk is full", func() bool { return l.Status().Waiting > 0 })
	cancel()
	<-filled
	call := func() {
		l.Call(context.Background(), pailfs.Caller{UID: 1}, "loader.preload", func() bool { return true }, nil)("refused")
	}
	ended := make(chan struct{})
	go func() { defer close(ended); call() }()
	eventually(t, "the call waits", func() bool { return l.Status().Waiting > 0 })
	l.End()
	<-ended
	call()
	must(t, l.Close())
}

// answered is the context of a request that was answered: it is done, and nobody has cancelled it.
type answered struct{ context.Context }

func (answered) Err() error { return nil }

// TestARequestThatWasAnsweredDoesNotWait: nor does it turn in circles until there is room.
func TestARequestThatWasAnsweredDoesNotWait(t *testing.T) {
	l := open(t, Config{To: filepath.Join(t.TempDir(), "audit"), Full: Block, queued: 1})
	must(t, l.Admit(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Admit(answered{ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("admitted with %v", err)
	}
	l.Done(pailfs.Operation{Verb: pailfs.Mkdir, Path: "/x"})
	must(t, l.Close())
}

// TestFullDiskThatCounts: operations go on, and the lines say how many are missing.
func TestFullDiskThatCounts(t *testing.T) {
	const each = 100
	dir := disk(t, "64k")
	path := filepath.Join(dir, "audit")
	l := open(t, Config{To: path, Full: Count, queued: 64, linger: time.Millisecond})
	n := uint64(0)
	more := func() {
		load(l, 1, each).Wait() // nobody waits
		n += each
	}
	eventually(t, "the disk is full", func() bool { more(); return l.Status().Error != "" })
	more()
	if s := l.Status(); s.Dropped == 0 || s.Waiting != 0 {
		t.Errorf("while it is full %+v", s)
	}
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"))
	eventually(t, "it is written again", func() bool { return l.Status().Error == "" })
	do(l, "/last")
	must(t, l.Close())
	var recorded, dropped uint64
	lines := readLines(t, path)
	for _, line := range lines {
		switch line.Op {
		case string(pailfs.Unlink):
			recorded++
		case string(verbDropped):
			dropped += line.Records
		}
	}
	if recorded+dropped != n+1 || dropped == 0 || dropped != l.Status().Dropped {
		t.Errorf("%d recorded and %d dropped of %d; status says %d", recorded, dropped, n+1, l.Status().Dropped)
	}
	if last := lines[len(lines)-1]; last.Op != string(verbStop) {
		t.Errorf("it ends with %+v", last)
	}
}

// TestFullDiskAtTheEnd: what cannot be written when the mount ends is counted, and does not
// hold it up.
func TestFullDiskAtTheEnd(t *testing.T) {
	for _, full := range []string{Count, Block} {
		path := filepath.Join(disk(t, "64k"), "audit")
		l := open(t, Config{To: path, Full: full, queued: 64, linger: time.Millisecond})
		running := load(l, 1, 1000)
		if full == Count {
			running.Wait()
		}
		eventually(t, "the disk is full", func() bool {
			if full == Count {
				load(l, 1, 10).Wait()
			}
			return l.Status().Error != ""
		})
		must(t, l.Close())
		running.Wait()
		s := l.Status()
		lines := readLines(t, path)
		if s.Dropped == 0 || s.Written != uint64(len(lines)) {
			t.Errorf("%s: %+v with %d lines", full, s, len(lines))
		}
	}
}

// TestDeletedFileIsMadeAnew: nothing is written where nobody sees it.
func TestDeletedFileIsMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "audit")
	l := open(t, Config{To: path, Full: Count, linger: time.Millisecond})
	must(t, os.Remove(path))
	do(l, "/0/0")
	eventually(t, "it is written", func() bool { return l.Status().Written >= 2 })
	lines := readLines(t, path)
	if len(lines) == 0 || lines[0].Path != "/0/0" {
		t.Errorf("the new file begins with %+v", lines)
	}
	// Also where that works later only.
	must(t, os.RemoveAll(dir))
	do(l, "/0/1")
	eventually(t, "it fails", func() bool { return l.Status().Error != "" })
	must(t, os.Mkdir(dir, 0o700))
	eventually(t, "it works", func() bool { return l.Status().Error == "" })
	must(t, l.Close())
	if lines := readLines(t, path); lines[0].Path != "/0/1" || lines[1].Op != string(verbReopened) {
		t.Errorf("the third file begins with %+v", lines[:2])
	}
}

// TestFileMustBeOursAlone goes through what is refused.
func TestFileMustBeOursAlone(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(in("open"), nil, 0o644))
	must(t, os.WriteFile(in("foreign"), nil, 0o600))
	must(t, os.Chown(in("foreign"), 1234, 1234))
	must(t, unix.Mkfifo(in("pipe"), 0o600))
	l := open(t, Config{To: in("used")})
	defer func() { must(t, l.Close()) }()
	for name, want := range map[string]string{
		"open": "chmod 600", "foreign": "belongs to user 1234", "pipe": "no regular file", "used": "another daemon",
		"no/audit": "directory that exists", ".": "open the audit",
	} {
		if _, err := Open(Config{To: in(name)}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestTornLineOfACrashIsEnded: what a daemon left that was killed does not spoil the next line.
func TestTornLineOfACrashIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	must(t, os.WriteFile(path, []byte(`{"v":1,"se`), 0o600))
	must(t, open(t, Config{To: path}).Close())
	text, err := os.ReadFile(path)
	must(t, err)
	torn, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(torn) != `{"v":1,"se` {
		t.Errorf("it was %q", torn)
	}
	if lines := parse(t, rest); len(lines) != 2 || lines[0].Op != string(verbStart) || lines[1].Op != string(verbStop) {
		t.Errorf("%+v", lines)
	}
}

// standIn makes /run this test's own, and a datagram socket in it.
func standIn(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	return c
}

func ownRun(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/run", unix.MNT_DETACH)) })
}

// TestJournal sends to a stand-in for the journal, small records and those that are too large
// for a datagram.
func TestJournal(t *testing.T) {
	ownRun(t)
	const socket = "/run/systemd/journal/socket"
	if _, err := Open(Config{To: Journald}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no journal") {
		t.Errorf("without a journal: %v", err)
	}
	c := standIn(t, socket)
	_ = c.SetReadBuffer(4 << 20)
	l := open(t, Config{To: Journald, linger: time.Millisecond})
	next := func() read {
		t.Helper()
		for {
			buf, oob := make([]byte, 1<<20), make([]byte, 64)
			n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
			must(t, err)
			text := buf[:n]
			if oobn > 0 {
				text = fromDescriptor(t, oob[:oobn])
			}
			if len(text) == 0 {
				continue // the library looks whether there is a journal
			}
			if !bytes.Contains(text, []byte("SYSLOG_IDENTIFIER=pailfs-audit\n")) || !bytes.Contains(text, []byte("PRIORITY=6\n")) {
				t.Errorf("%.200q", text)
			}
			_, message, _ := bytes.Cut(text, []byte("MESSAGE="))
			message, _, _ = bytes.Cut(message, []byte("\n"))
			return parse(t, append(message, '\n'))[0]
		}
	}
	if got := next(); got.Op != string(verbStart) {
		t.Errorf("first %+v", got)
	}
	large := "/" + strings.Repeat("x", 1<<20)
	do(l, large)
	if got := next(); got.Path != large {
		t.Errorf("a path of %d bytes", len(got.Path))
	}
	// The journal is restarted: what came meanwhile waits.
	must(t, c.Close())
	must(t, os.RemoveAll(socket))
	do(l, "/0/0")
	eventually(t, "it fails", func() bool { return l.Status().Error != "" })
	c = standIn(t, socket)
	if got := next(); got.Path != "/0/0" {
		t.Errorf("after the restart %+v", got)
	}
	must(t, l.Close())
	if got := next(); got.Op != string(verbStop) {
		t.Errorf("last %+v", got)
	}
}

// fromDescriptor reads what was sent as a file.
func fromDescriptor(t *testing.T, oob []byte) []byte {
	t.Helper()
	messages, err := syscall.ParseSocketControlMessage(oob)
	must(t, err)
	fds, err := syscall.ParseUnixRights(&messages[0])
	must(t, err)
	f := os.NewFile(uintptr(fds[0]), "record")
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	must(t, err)
	text := make([]byte, info.Size())
	_, err = f.ReadAt(text, 0)
	must(t, err)
	return text
}

// TestSyslog sends to a stand-in for syslog, which goes and comes back.
func TestSyslog(t *testing.T) {
	ownRun(t)
	if _, err := os.Stat("/dev/log"); err == nil {
		must(t, unix.Mount("/dev/null", "/dev/log", "", unix.MS_BIND, "")) // this machine's own is not to hear of it
		t.Cleanup(func() { must(t, unix.Unmount("/dev/log", 0)) })
	}
	if _, err := Open(Config{To: Syslog}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no syslog") {
		t.Errorf("without syslog: %v", err)
	}
	const socket = "/run/log" // the third place where it is looked for, as /var/run/log
	c := standIn(t, socket)
	l := open(t, Config{To: Syslog, linger: time.Millisecond})
	next := func() read {
		t.Helper()
		buf := make([]byte, 1<<16)
		n, err := c.Read(buf)
		must(t, err)
		text := string(buf[:n])
		const informational = "<86>" // authpriv, info
		at := strings.Index(text, "{")
		if !strings.HasPrefix(text, informational) || !strings.Contains(text[:at], "pailfs-audit[") {
			t.Errorf("%.200q", text)
		}
		return parse(t, []byte(text[at:]))[0]
	}
	if got := next(); got.Op != string(verbStart) {
		t.Errorf("first %+v", got)
	}
	must(t, c.Close())
	must(t, os.RemoveAll(socket))
	do(l, "/0/0")
	eventually(t, "it fails", func() bool { return l.Status().Error != "" })
	c = standIn(t, socket)
	if got := next(); got.Path != "/0/0" {
		t.Errorf("after the restart %+v", got)
	}
	must(t, l.Close())
	if got := next(); got.Op != string(verbStop) {
		t.Errorf("last %+v", got)
	}
}

// TestCallsOfTheControlChannel: which are recorded, and that the owner's do not wait for room.
func TestCallsOfTheControlChannel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l := open(t, Config{To: path, Full: Block, queued: 4, linger: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // who is interrupted waits for no room, and its call goes on
	c := pailfs.Caller{UID: 1, Dir: "base"}
	stranger, owner := func() bool { return true }, func() bool { return false }
	many := `{"base":"b","paths":["` + strings.Repeat(`x","`, mostPaths) + `../y"]}`
	for range 50 {
		l.Call(ctx, c, "loader.preload", stranger, json.RawMessage(`{}`))("ok")
		l.Call(ctx, c, "flush", stranger, json.RawMessage(`{"path":"","begun":"2026-01-01T00:00:00Z"}`))("ok")
		l.Call(ctx, c, "umount", owner, json.RawMessage(`{"result":true}`))("ok")
		l.Call(ctx, c, "loader.preload", stranger, json.RawMessage(`{}`))("refused")
		l.Call(ctx, c, "flush", stranger, json.RawMessage(`{"path":"a"}`))("ok")
		l.Call(ctx, c, "umount", owner, json.RawMessage(`{}`))("ok")
		l.Call(ctx, c, "warm.add", stranger, json.RawMessage(many))("failed")
	}
	must(t, l.Close())
	var got []string
	for _, line := range readLines(t, path) {
		got = append(got, fmt.Sprint(line.Op, line.Code, len(line.Paths), strings.Join(line.Paths[:min(1, len(line.Paths))], "")))
	}
	for i := range 50 {
		for j, want := range []string{"callrefused0", "flushok1/base/a", "umountok0", "warmfailed100/base/b/x"} {
			if at := 1 + 4*i + j; at >= len(got) || got[at] != want {
				t.Fatalf("line %d of %q, want %s", at, got[:min(len(got), 12)], want)
			}
		}
	}
}

// TestProcessesAreToldApart: a thread whose number was used before, and a process that runs
// another program, are what they are now.
func TestProcessesAreToldApart(t *testing.T) {
	var p processes
	defer p.close()
	cmd := exec.Command("sh", "-c", "read x; exec cat")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	pid := uint32(cmd.Process.Pid)
	eventually(t, "the shell runs", func() bool { return p.of(pid).Command == "sh" })
	if got := p.of(pid); got.PID != pid || !strings.HasPrefix(got.Program, "/") || got != p.of(pid) {
		t.Errorf("%+v", got)
	}
	_, err = in.Write([]byte("go\nhere\n"))
	must(t, err)
	_, err = bufio.NewReader(out).ReadString('\n') // cat runs
	must(t, err)
	eventually(t, "it is seen to be cat", func() bool { return p.of(pid).Command == "cat" })
	must(t, in.Close())
	must(t, cmd.Wait())
	if got := p.of(pid); got.PID != 0 || got.Command != "" {
		t.Errorf("a process that is gone is %+v", got)
	}
	if got := p.of(0); got.PID != 0 {
		t.Errorf("a caller from elsewhere is %+v", got)
	}
}

// TestFewThreadsAreRemembered: they take descriptors.
func TestFewThreadsAreRemembered(t *testing.T) {
	var p processes
	defer p.close()
	self := uint32(os.Getpid())
	for i := range uint32(mostThreads + 10) {
		p.mu.Lock()
		fd, err := unix.PidfdOpen(int(self), 0)
		must(t, err)
		if p.mu.threads == nil {
			p.mu.threads = make(map[uint32]thread)
		}
		if len(p.mu.threads) >= mostThreads {
			p.makeRoom()
		}
		p.mu.threads[1<<22+i] = thread{pidfd: fd, process: &pailfs.Process{}, read: time.Now()}
		p.mu.Unlock()
	}
	if n := len(p.mu.threads); n > mostThreads {
		t.Errorf("%d threads are remembered", n)
	}
}
