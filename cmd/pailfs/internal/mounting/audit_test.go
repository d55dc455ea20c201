package mounting

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// audited is a line of an audit.
type audited struct {
	Op, Path, Command, Method, Code, Error, Reason, Access string

	UID       uint32
	PID       int
	BytesRead int64  `json:"bytes_read"`
	ETag      string `json:"etag"`
}

func readAudit(t *testing.T, path string) (all []audited) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var a audited
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, a)
	}
	return all
}

// TestAuditOfAMount: what programs and users do through a mount is in the file, who is refused
// too, and SIGHUP begins a new one.
func TestAuditOfAMount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.OpenUp(t, s.At)
	dir := t.TempDir()
	path, log := filepath.Join(dir, "audit"), filepath.Join(dir, "log")
	programtest.MustRun(t, s.MountArgs("--detach", "--allow-other", "--umask=077", "--audit="+path, "--log-file="+log)...)
	s.Reads()
	object := filepath.Join(s.At, "dir", "file")
	stranger := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	if o := programtest.RunAs(t, stranger, programtest.Environ(), "/bin/cat", object); o.Code == 0 {
		t.Errorf("a stranger reads: %+v", o)
	}
	programtest.MustRun(t, "evict", object)
	status := programtest.StatusOf(t, s.At)
	if a := status.Audit; a == nil || a.To != path || a.Full != "count" || a.Dropped != 0 || a.Error != "" {
		t.Errorf("status says %+v", a)
	}
	if o := programtest.MustRun(t, "status", s.At); !strings.Contains(o.Stdout, path+": ") || !strings.Contains(o.Stdout, "records written") {
		t.Errorf("status says\n%s", o.Stdout)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(status.PID, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the audit is opened again", func() bool { return programtest.StatusOf(t, s.At).Audit.Reopened == 1 })
	programtest.MustRun(t, "umount", s.At)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v: %v", info, err)
	}
	all := slices.Concat(readAudit(t, path+".1"), readAudit(t, path))
	for _, want := range []audited{
		{Op: "audit-start"},
		{Op: "open", Path: "/dir/file", Access: "read"},
		{Op: "close", Path: "/dir/file", Access: "read", BytesRead: int64(len(programtest.Content))},
		{Op: "open", Path: "/", Access: "read", UID: 1234, Error: "EACCES"},
		{Op: "evict", Method: "evict", Code: "ok"},
		{Op: "audit-reopened", Reason: "SIGHUP"},
		{Op: "umount", Method: "umount", Code: "ok"},
		{Op: "audit-stop"},
	} {
		found := 0
		for _, got := range all {
			if got.Op == "open" && got.Error == "" && got.ETag == "" || got.Op == "open" && got.PID == 0 {
				t.Errorf("an open without version or process: %+v", got)
			}
			got.PID, got.ETag, got.Command = 0, "", ""
			if got == want {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%+v is there %d times in %+v", want, found, all)
		}
	}
}

// TestRefusedCallsAreLoggedAndAudited: with who called.
func TestRefusedCallsAreLoggedAndAudited(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.OpenUp(t, s.At)
	dir := t.TempDir()
	path, log := filepath.Join(dir, "audit"), filepath.Join(dir, "log")
	programtest.MustRun(t, s.MountArgs("--detach", "--allow-other", "--audit="+path, "--log-file="+log)...)
	out := (&user{name: "stranger", uid: 1234, gid: 1234}).run(t, errand{Dir: s.At, Calls: []userCall{{Method: "drain"}, {Method: "status"}}})
	if len(out.Answers) != 2 {
		t.Fatalf("%+v", out)
	}
	programtest.MustRun(t, "umount", s.At)
	refused := 0
	for _, a := range readAudit(t, path) {
		if a.UID == 1234 {
			refused++
			if a.Op != "drain" || a.Code != "refused" || a.PID == 0 {
				t.Errorf("%+v", a)
			}
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if refused != 1 || !strings.Contains(string(text), `level=INFO msg="control call refused" method=drain uid=1234 pid=`) {
		t.Errorf("recorded %d times; the log is\n%s", refused, text)
	}
}

// TestMountWithAFullAuditDisk: with block operations wait, status says so, and the owner can end
// the mount all the same.
func TestMountWithAFullAuditDisk(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	programtest.MustRun(t, s.MountArgs("--detach", "--audit="+filepath.Join(dir, "audit"), "--audit-full=block")...)
	cmd := exec.Command("sh", "-c", `while true <"$1"; do :; done`, "sh", filepath.Join(s.At, "dir", "file"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "operations wait", func() bool { return programtest.StatusOf(t, s.At).Audit.Waiting > 0 })
	status := programtest.StatusOf(t, s.At)
	if a := status.Audit; a.Error == "" || a.Dropped != 0 || a.Failures == 0 {
		t.Errorf("status says %+v", a)
	}
	if w := strings.Join(status.Warnings, "\n"); !strings.Contains(w, "the audit cannot be written to "+dir) {
		t.Errorf("warnings %q", w)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, although its operation waited
	programtest.MustRun(t, "umount", s.At)
}

// TestAuditMustNotLieOnItsMount: it would record itself.
func TestAuditMustNotLieOnItsMount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	o := programtest.Run(t, programtest.Environ(), s.MountArgs("--audit="+filepath.Join(s.At, "audit"))...)
	if o.Code != 1 || !strings.Contains(o.Stderr, "--audit") || !strings.Contains(o.Stderr, "is to be audited") {
		t.Errorf("%+v", o)
	}
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	other := programtest.NewMountPoint(t)
	o = programtest.Run(t, programtest.Environ(), "mount", "oss://"+programtest.TestBucket, other, "--endpoint="+s.Endpoint, "--memory=64MiB", "--audit="+filepath.Join(s.At, "audit"))
	if o.Code != 1 || !strings.Contains(o.Stderr, "FUSE mount") {
		t.Errorf("on another mount: %+v", o)
	}
	programtest.MustRun(t, "umount", s.At)
}
