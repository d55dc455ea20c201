package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// daemon is a running `pailfs mount`.
type daemon struct {
	w    *world
	cmd  *exec.Cmd
	log  *mounttest.Output
	done chan struct{}
}

// mount mounts the world and waits until the mount answers.
func (w *world) mount(args ...string) *daemon {
	w.t.Helper()
	return w.mountWith(nil, args...)
}

// mountWith is mount with more in the environment.
func (w *world) mountWith(env []string, args ...string) *daemon {
	w.t.Helper()
	d := w.start(w.at, w.cache, env, args...)
	if err := d.ready(); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// start starts a daemon for the world.
func (w *world) start(at, cache string, env []string, args ...string) *daemon {
	w.t.Helper()
	d := &daemon{w: w, log: new(mounttest.Output), done: make(chan struct{})}
	d.cmd = exec.Command(program, append([]string{
		"mount", "oss://" + w.Bucket, at, "--endpoint=" + w.Endpoint, "--cache-dir=" + cache,
		"--memory=64MiB", "--http=127.0.0.1:0", "--http-debug",
	}, args...)...)
	d.cmd.Env = append(append(os.Environ(),
		"OSS_ACCESS_KEY_ID="+w.AccessKeyID, "OSS_ACCESS_KEY_SECRET="+w.AccessKeySecret, "GORACE=halt_on_error=1"), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.daemons = append(w.daemons, d)
	go func() {
		_ = d.cmd.Wait() // how it ended is asked of ProcessState
		close(d.done)
	}()
	w.t.Cleanup(func() {
		d.kill()
		if log := d.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") || strings.Contains(log, "fatal error") {
			w.t.Error("the daemon panicked or raced")
		}
		if w.t.Failed() {
			w.t.Logf("log of %v:\n%s", d.cmd.Args, tail(d.log.String(), 8000))
		}
	})
	return d
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

var webAddress = regexp.MustCompile(`msg="serving metrics" address=(\S+)`)

// ready waits until the mount answers, and returns what a daemon said that ended.
func (d *daemon) ready() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		log := d.log.String()
		if strings.Contains(log, "msg=ready") {
			return nil
		}
		if !d.running() {
			return fmt.Errorf("the daemon ended: %s", tail(d.log.String(), 4000))
		}
		if time.Now().After(deadline) {
			d.dump()
			return errors.New("the mount does not become ready")
		}
	}
}

// running reports whether the daemon has not ended.
func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// kill ends the daemon without mercy.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.done
}

// stop unmounts in an orderly way.
func (d *daemon) stop() {
	d.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "umount", d.w.at).CombinedOutput()
	if err != nil {
		d.dump()
		d.w.t.Fatalf("umount: %v: %s", err, out)
	}
	<-d.done
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.w.t.Errorf("the daemon ended with code %d", code)
	}
}

// dump logs what the daemon says of itself, and what its goroutines do.
func (d *daemon) dump() {
	d.w.t.Logf("status: %s", d.statusText())
	if text, err := d.get("/debug/pprof/goroutine?debug=2"); err == nil {
		d.w.t.Logf("goroutines of the daemon:\n%s", tail(string(text), 60_000))
	}
}

func (d *daemon) get(path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	// The address may be told after the mount is ready.
	var web []string
	until(func() bool { web = webAddress.FindStringSubmatch(d.log.String()); return web != nil || !d.running() })
	if web == nil {
		return nil, errors.New("the daemon does not say where it serves metrics")
	}
	answer, err := client.Get("http://" + web[1] + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// status is what the tests look at of `pailfs status --json`.
type status struct {
	FileSystem struct {
		Opens struct {
			Cached      int64 `json:"cached"`
			Passthrough int64 `json:"passthrough"`
		} `json:"opens"`
		OpenFiles   int64 `json:"open_files"`
		Inodes      int64 `json:"inodes"`
		Reads       int64 `json:"reads"`
		Passthrough struct {
			On     bool   `json:"on"`
			Reason string `json:"reason"`
		} `json:"passthrough"`
		Errors int64 `json:"errors"`
	} `json:"file_system"`
	Cache struct {
		Memory struct {
			Used int64 `json:"used"`
			Kept int64 `json:"kept"`
		} `json:"memory"`
		SSD struct {
			State     string `json:"state"`
			LastError string `json:"last_error"`
			Queued    int64  `json:"queued"`
			Used      int64  `json:"used"`
			Objects   int    `json:"objects"`
			Unindexed int    `json:"unindexed"`
			Damaged   int64  `json:"damaged"`
			Evicted   int64  `json:"evicted"`
			Written   int64  `json:"written"`
		} `json:"ssd"`
		Corrupted int64 `json:"corrupted"`
	} `json:"cache"`
}

func (d *daemon) statusText() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "status", "--json", d.w.at).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

func (d *daemon) status() (s status) {
	d.w.t.Helper()
	text := d.statusText()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		d.w.t.Fatalf("status: %v: %s", err, text)
	}
	return s
}

// settle waits until the SSD tier has written and indexed what it will.
func (d *daemon) settle() {
	d.w.t.Helper()
	d.eventually("the SSD tier rests", func() bool {
		s := d.status().Cache.SSD
		return s.Queued == 0 && s.Unindexed == 0
	})
}

// eventually waits until a condition holds.
func (d *daemon) eventually(what string, holds func() bool) {
	d.w.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if !d.running() {
			d.w.t.Fatalf("the daemon ended while waiting until %s", what)
		}
		if time.Now().After(deadline) {
			d.w.t.Errorf("waited in vain until %s", what)
			d.dump()
			d.w.t.FailNow()
		}
	}
}

// tier is what the attribute of a file says of the tiers.
func (d *daemon) tier(f file) string {
	d.w.t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Getxattr(d.w.path(f), "user.pailfs.tier", buf)
	if err != nil {
		d.w.t.Fatalf("tiers of %q: %v", f.Key, err)
	}
	return string(buf[:n])
}

// isWhole reports whether the file is whole on SSD.
func (d *daemon) isWhole(f file) bool {
	d.w.t.Helper()
	return strings.Contains(d.tier(f), "whole=true")
}

// whole returns which files are whole on SSD.
func (d *daemon) whole() (whole []file) {
	d.w.t.Helper()
	for _, f := range d.w.files {
		if d.isWhole(f) {
			whole = append(whole, f)
		}
	}
	return whole
}

// verify reads every byte of the files in the given ways.
func (d *daemon) verify(what string, files []file, kinds ...string) tally {
	d.w.t.Helper()
	told := job{Root: d.w.at, Files: files, Readers: 4, Kinds: kinds, EachOnce: true}.start(d.w.t).wait(d)
	told.sound(d.w.t, what)
	if told.Gone {
		d.w.t.Errorf("%s: the daemon went away", what)
	}
	return told
}

// recovers waits until the files can be read without an error, and then verifies
// them in the given ways. Doubtful says that what is left of a trouble may be
// damaged content; see job.
func (d *daemon) recovers(what string, doubtful bool, files []file, kinds ...string) {
	d.w.t.Helper()
	d.eventually(what+", files can be read", func() bool {
		told := job{Root: d.w.at, Files: files, Readers: 4, Kinds: []string{sequential}, EachOnce: true, Doubtful: doubtful}.start(d.w.t).wait(d)
		told.sound(d.w.t, what, "EIO")
		return len(told.Errors) == 0 || d.w.t.Failed()
	})
	d.verify(what, files, kinds...)
}

// fetch reads files until they are whole on SSD.
func (d *daemon) fetch(files []file) {
	d.w.t.Helper()
	d.eventually("the files are whole on SSD", func() bool {
		var missing []file
		for _, f := range files {
			if !d.isWhole(f) {
				missing = append(missing, f)
			}
		}
		if len(missing) > 0 {
			forget(d.w, missing)
			d.verify("fetch", missing, sequential)
		}
		d.settle()
		return len(missing) == 0
	})
}

// forget drops what the kernel's page cache holds of the files of the mount, and
// of the cache's own files, so that the next read goes to the daemon, or the disk.
func forget(w *world, files []file) {
	w.t.Helper()
	for _, f := range files {
		dropPages(w.path(f))
	}
	for _, path := range w.objectFiles() {
		dropPages(path)
	}
}

// dropPages drops the pages of a file that are clean.
func dropPages(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return // it is gone
	}
	defer unix.Close(fd)
	_ = unix.Fdatasync(fd)
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

// objectFiles are the paths of the object files in the cache directory.
func (w *world) objectFiles() []string {
	w.t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.cache, "objects", "*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return paths
}

// descriptors is how many files the daemon has open.
func (d *daemon) descriptors() int {
	d.w.t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}
	return len(names)
}

// connections is how many connections to the store the daemon has, those that rest for the next
// request among them.
func (d *daemon) connections() int {
	d.w.t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.w.Endpoint, "http://"))
	if err != nil {
		d.w.t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		d.w.t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		d.w.t.Fatal(err)
	}
	n, own := 0, d.sockets()
	store := fmt.Sprintf(":%04X", number)
	for line := range strings.Lines(string(text)) {
		// sl, local address, remote address, and others, of which the tenth is the inode.
		f := strings.Fields(line)
		if len(f) > 9 && strings.HasSuffix(f[2], store) && own["socket:["+f[9]+"]"] {
			n++
		}
	}
	return n
}

// sockets are what /proc calls the sockets that the daemon has open.
func (d *daemon) sockets() map[string]bool {
	d.w.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		d.w.t.Fatal(err)
	}
	sockets := make(map[string]bool)
	for _, name := range names {
		if to, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			sockets[to] = true
		}
	}
	return sockets
}

// goroutines is how many goroutines the daemon has.
func (d *daemon) goroutines() int {
	d.w.t.Helper()
	text, err := d.get("/metrics")
	if err != nil {
		d.w.t.Fatal(err)
	}
	var n int
	if _, after, ok := strings.Cut(string(text), "\ngo_goroutines "); ok {
		_, err = fmt.Sscan(after, &n)
	}
	if err != nil || n == 0 {
		d.w.t.Fatalf("%v: %.100s", err, text)
	}
	return n
}

// heap tells what the daemon's memory is used for, as its runtime counts it.
func (d *daemon) heap() string {
	d.w.t.Helper()
	text, err := d.get("/metrics")
	if err != nil {
		d.w.t.Fatal(err)
	}
	var told []string
	for _, name := range []string{"heap_inuse", "heap_idle", "heap_released", "stack_inuse", "mspan_inuse"} {
		var bytes float64
		_, after, _ := strings.Cut(string(text), "\ngo_memstats_"+name+"_bytes ")
		if _, err := fmt.Sscan(after, &bytes); err != nil {
			d.w.t.Fatalf("%s: %v", name, err)
		}
		told = append(told, fmt.Sprintf("%s %d MiB", name, int64(bytes)>>20))
	}
	return strings.Join(told, ", ")
}

// keepHeap writes a profile of the heap, for go tool pprof, to a file in the folder where profiles
// are kept, if they are.
func (d *daemon) keepHeap(name string) {
	d.w.t.Helper()
	dir := os.Getenv(torture.EnvProfiles)
	if dir == "" {
		return
	}
	text, err := d.get("/debug/pprof/heap")
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o644)); err != nil {
		d.w.t.Errorf("profile of the heap: %v", err)
	}
}

// dumpHeap logs who holds the daemon's heap.
func (d *daemon) dumpHeap() {
	if text, err := d.get("/debug/pprof/heap?gc=1&debug=1"); err == nil {
		d.w.t.Logf("heap of the daemon: %s\n%.60000s", d.heap(), text)
	}
}

// residentOr0 is how much memory the daemon has, 0 if it has ended.
func (d *daemon) residentOr0() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// resident is how much memory the daemon has.
func (d *daemon) resident() int64 {
	d.w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		d.w.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// mostResident is how much memory the daemon ever had.
func (d *daemon) mostResident() int64 {
	d.w.t.Helper()
	return d.memory("VmHWM")
}

// memory is a field of the kernel's status of the daemon, in bytes: proc_pid_status(5).
func (d *daemon) memory(field string) int64 {
	d.w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		d.w.t.Fatalf("%s of %q: %v", field, text, err)
	}
	return kib << 10
}

// newMountPoint returns an empty directory from which whatever is mounted there
// is removed when the test ends.
func newMountPoint(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(at, unix.MNT_DETACH) == nil {
		}
	})
	return at
}
