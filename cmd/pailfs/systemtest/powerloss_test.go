package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// powerDisk is a disk whose state of one moment can be had: what it holds lies in a
// file on another file system, which is frozen while it is copied. What the kernel
// has not written to the disk is not in the copy.
type powerDisk struct {
	*disk
	outer *disk
	image string
}

// newPowerDisk makes an ext4 of so many MiB on another one.
func newPowerDisk(t *testing.T, mib int) *powerDisk {
	t.Helper()
	p := &powerDisk{outer: newDisk(t, "ext4", mib+mib/2)}
	p.image = filepath.Join(p.outer.dir, "image")
	if err := os.WriteFile(p.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p.image, int64(mib)<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", "-m", "0", p.image)
	p.disk = mountImage(t, p.image)
	return p
}

// mountImage mounts the ext4 in a file.
func mountImage(t *testing.T, image string) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(t.TempDir(), "disk")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-o", "loop,noatime", image, d.dir)
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	d.cache = filepath.Join(d.dir, "cache")
	return d
}

// losePower returns a file with what the disk has at this moment.
func (p *powerDisk) losePower() string {
	p.t.Helper()
	copied := filepath.Join(p.t.TempDir(), "image")
	p.outer.freeze()
	err := copyFile(p.image, copied)
	if thawed := p.outer.thaw(); thawed != nil {
		p.t.Fatal(thawed)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return copied
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close() // the error before counts
		return err
	}
	return out.Close()
}

// anotherBoot lets every process started from now on believe that the machine was
// started anew.
func anotherBoot(t *testing.T) {
	t.Helper()
	const id = "/proc/sys/kernel/random/boot_id"
	fake := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(fake, fmt.Appendf(nil, "00000000-0000-4000-8000-%012x\n", time.Now().UnixNano()&0xffff_ffff_ffff), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fake, id, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(id, unix.MNT_DETACH) })
}

// bootFrom lets the machine start again with what the disk had, and the store answer. The
// cache directory may have moved to another machine, or lost its index.
func (w *world) bootFrom(image string, round int) {
	w.t.Helper()
	anotherBoot(w.t)
	after := mountImage(w.t, image)
	w.cache = after.cache
	switch round % 3 {
	case 1:
		if err := os.Remove(filepath.Join(w.cache, "index.db")); err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
	case 2:
		moved := filepath.Join(after.dir, "moved")
		if err := os.Rename(w.cache, moved); err != nil {
			w.t.Fatal(err)
		}
		w.cache = moved
	}
	w.faults()
}

// promised is what writers know of what they wrote.
type promised struct {
	mu sync.Mutex
	// safe is what must not be lost, closed what was closed since.
	safe, closed map[string]version
	// The last checkpoint of each trainer that is safe, and that was renamed.
	safeLatest, latest map[string]int
	// rested, unless it is nil, is closed when trainers go on after a checkpoint.
	rested chan struct{}
}

func newPromised() *promised {
	return &promised{
		safe: map[string]version{}, closed: map[string]version{}, safeLatest: map[string]int{}, latest: map[string]int{},
	}
}

// wrote notes a file that was accepted.
func (p *promised) wrote(v version, safe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if safe {
		p.safe[v.Key] = v
	} else {
		p.closed[v.Key] = v
	}
}

func (p *promised) renamed(trainer string, step int, safe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest[trainer] = step
	if safe {
		p.safeLatest[trainer] = step
	}
}

// vouch asks the daemon whether everything that was closed before is on the disk, and
// notes that it is.
func (p *promised) vouch(d *daemon) {
	p.mu.Lock()
	closed, latest := maps.Clone(p.closed), maps.Clone(p.latest)
	p.mu.Unlock()
	if s := d.writing(); s.NotDurable == nil || *s.NotDurable > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.safe, closed)
	maps.Copy(p.safeLatest, latest)
}

// writing is what the test looks at of `pailfs status --json`.
type writing struct {
	NotDurable *int     `json:"not_durable"`
	Suspects   []string `json:"suspects"`
	Conflicts  []any    `json:"conflicts"`
	Failures   int64    `json:"failures"`
	Failing    []any    `json:"failing"`
	// Pending and UploadedBytes move while anything is published.
	Pending       int   `json:"pending"`
	UploadedBytes int64 `json:"uploaded_bytes"`
}

// writing returns it, or nothing if the daemon does not answer.
func (d *daemon) writing() writing {
	var s struct {
		Writing writing `json:"writing"`
	}
	if json.Unmarshal([]byte(d.statusText()), &s) != nil {
		return writing{}
	}
	return s.Writing
}

// flush waits until all that can be is in the bucket. Files that are lost it names, and
// fails. It hangs if nothing more is uploaded for as long as patience lasts: how much there is to
// send, and how slow the disk is, is not its fault.
func (d *daemon) flush() {
	d.w.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(program, "flush", d.w.at)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		d.w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	seen, since := d.writing(), time.Now()
	for waiting := true; waiting; {
		select {
		case err = <-ended:
			waiting = false
		case <-time.After(5 * time.Second):
			now := d.writing()
			if now.Pending != seen.Pending || now.UploadedBytes != seen.UploadedBytes {
				seen, since = now, time.Now()
			}
			if time.Since(since) > patience {
				d.dump()
				_ = cmd.Process.Kill() // it may have ended
				err, waiting = <-ended, false
			}
		}
	}
	if err != nil && !strings.Contains(out.String(), "the disk lost") && !strings.Contains(out.String(), "did not survive the loss of power") {
		d.w.t.Fatalf("flush: %v: %s", err, &out)
	}
}

// kept returns what is safe now.
func (p *promised) kept() (safe map[string]version, latest map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.safe), maps.Clone(p.safeLatest)
}

// shardsOf are the files of a checkpoint: some travel in the journal, some do not.
func shardsOf(trainer string, step int) []version {
	var all []version
	for i, size := range []int64{3_000, 200_000, 1_500_000} {
		all = append(all, version{Key: fmt.Sprintf("%s/step-%d/shard%d", trainer, step, i), Number: step, Size: size + int64(step%7)*1000})
	}
	return all
}

var namesStep = regexp.MustCompile(`^step-(\d+)$`)

// ordered fails unless every checkpoint that is named in the bucket is there, whole. It
// returns which are named.
func (w *world) ordered(when string) map[string]int {
	w.t.Helper()
	named := make(map[string]int)
	for _, key := range w.Keys("") {
		trainer, ok := strings.CutSuffix(key, "/latest")
		if !ok {
			continue
		}
		m := namesStep.FindSubmatch(w.Get(key))
		if m == nil {
			w.t.Errorf("%s: %s holds %.40q", when, key, w.Get(key))
			continue
		}
		step, err := strconv.Atoi(string(m[1]))
		if err != nil {
			w.t.Error(err)
			continue
		}
		named[trainer] = step
		for _, v := range shardsOf(trainer, step) {
			w.keeps(when+", named by latest", v)
		}
	}
	return named
}

// keeps fails unless the bucket holds a version.
func (w *world) keeps(when string, v version) {
	w.t.Helper()
	var b bytes.Buffer
	if err := w.Server.Get(w.Bucket, v.Key, &b); err != nil {
		w.t.Errorf("%s: %s: %v", when, v.Key, err)
		return
	}
	if int64(b.Len()) != v.Size {
		w.t.Errorf("%s: %s has %d bytes, want %d", when, v.Key, b.Len(), v.Size)
	} else if bad := v.wrong(b.Bytes(), 0); bad >= 0 {
		w.t.Errorf("%s: %s", when, v.explain(b.Bytes(), 0, nil))
	}
}

// until waits until a condition holds, or for as long as anything may take: what follows
// shows that it does not.
func until(holds func() bool) {
	for deadline := time.Now().Add(patience); !holds() && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
}
