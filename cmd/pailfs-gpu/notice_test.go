package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pailfs runs a command of pailfs on the host that must succeed.
func (h *host) pailfs(args ...string) string {
	h.t.Helper()
	c := exec.Command(filepath.Join(bin, "pailfs"), args...)
	c.Env = h.environ()
	out, err := c.CombinedOutput()
	if err != nil {
		h.t.Fatalf("pailfs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inBucket returns what a mount without the first one's cache shows of a file.
func (h *host) inBucket(args []string, name string) string {
	h.t.Helper()
	elsewhere := filepath.Join(h.t.TempDir(), "mnt")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.mount(elsewhere, args[:3])
	return read(h.t, filepath.Join(elsewhere, name))
}

// says waits until a process has complained of something.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, text, func() bool {
		select {
		case <-p.ended:
			if !strings.Contains(p.errOut.String(), text) {
				p.t.Fatalf("it ended with %d and did not say %q: %s", p.code(), text, &p.errOut)
			}
		default:
		}
		return strings.Contains(p.errOut.String(), text)
	})
}

// TestNoticeEndsTheCommandAndSavesItsCheckpoint: the command writes its last checkpoint
// when it is told to end, and run ends when that is in the object store.
func TestNoticeEndsTheCommandAndSavesItsCheckpoint(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	args := bucket(t)
	at, _ := h.mounted(args)
	p := h.run("--mount", at, "--restarts", "3", "--", "sh", "-c",
		`trap "echo last > `+at+`/checkpoint; exit 7" TERM; touch `+h.dir+`/ready; while :; do sleep 0.05; done`)
	eventually(t, "the command", exists(h.dir+"/ready"))
	h.pailfs("drain", "--within", "299s", at)
	if p.code() != 7 {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
	for _, want := range []string{"the machine is about to go (pailfs drain by user", "the command: SIGTERM", "everything that was written is in the object store, 4m"} {
		if !strings.Contains(p.errOut.String(), want) {
			t.Errorf("it does not say %q: %s", want, &p.errOut)
		}
	}
	if got := h.inBucket(args, "checkpoint"); got != "last\n" {
		t.Errorf("in the bucket: %q", got)
	}
}

// TestSpotNoticeLeavesTimeForUploads: a command that saves a checkpoint when it gets the
// signal that was chosen, and goes on, is ended when its time is over.
func TestSpotNoticeLeavesTimeForUploads(t *testing.T) {
	t.Parallel()
	var notice atomic.Pointer[string]
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := notice.Load(); text != nil && strings.HasSuffix(r.URL.Path, "/spot/termination-time") {
			_, _ = w.Write([]byte(*text))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(metadata.Close)
	in := func(d time.Duration) {
		text := time.Now().Add(d).UTC().Format(time.RFC3339)
		notice.Store(&text)
	}
	h := newHost(t, 1)
	args := bucket(t)
	at, _ := h.mounted(append(args, "--spot-notice", metadata.URL))
	p := h.run("--mount", at, "--notice-signal", "usr1", "--", "sh", "-c",
		`trap "" TERM; trap "echo saved > `+at+`/checkpoint; touch `+h.dir+`/saved" USR1; touch `+h.dir+`/ready; while :; do sleep 0.05; done`)
	eventually(t, "the command", exists(h.dir+"/ready"))
	in(time.Hour)
	eventually(t, "the command to save its checkpoint", exists(h.dir+"/saved"))
	p.says("the machine is about to go (spot notice")
	in(0) // sooner than was said; so little time that a busy machine may not upload in it
	if p.code() != 128+int(syscall.SIGKILL) || !strings.Contains(p.errOut.String(), "its time is over: SIGKILL") {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
	h.pailfs("flush", at)
	if got := h.inBucket(args, "checkpoint"); got != "saved\n" {
		t.Errorf("in the bucket: %q", got)
	}
}

func TestNoticeMayBeTakenBack(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	at, _ := h.mounted(bucket(t))
	p := h.run("--mount", at, "--notice-signal", "none", "--", "sh", "-c", "touch "+h.dir+"/ready; while [ ! -e "+h.dir+"/end ]; do sleep 0.05; done")
	eventually(t, "the command", exists(h.dir+"/ready"))
	h.pailfs("drain", at)
	p.says("the machine is about to go")
	h.pailfs("drain", "--stop", at)
	p.says("the machine stays after all")
	if err := os.WriteFile(h.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p.code() != 0 {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestNothingIsStartedOnAMachineThatGoes(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1, "proc 4194303 100")
	at, _ := h.mounted(bucket(t))
	waiting := h.run("--mount", at, "--", "true")
	waiting.says("waiting for GPUs")
	h.pailfs("drain", at)
	later := h.run("--mount", at, "--", "true")
	for _, p := range []*process{waiting, later} {
		if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "nothing is started on it") {
			t.Errorf("exit code %d: %s", p.code(), &p.errOut)
		}
	}
}

func TestTheTimeBeforeTheMachineGoesIsShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ left, grace, upload, term, kill time.Duration }{
		{5 * time.Minute, 30 * time.Second, time.Minute, 210 * time.Second, 4 * time.Minute},
		{time.Minute, 30 * time.Second, time.Minute, 15 * time.Second, 30 * time.Second},
		{5 * time.Minute, 0, 0, 5 * time.Minute, 5 * time.Minute},
		{-time.Minute, 30 * time.Second, time.Minute, 0, 0},
	} {
		e := ending{grace: c.grace, upload: c.upload}
		if term, kill := e.schedule(c.left); term != c.term || kill != c.kill {
			t.Errorf("%+v: SIGTERM after %s, SIGKILL after %s", c, term, kill)
		}
	}
}
