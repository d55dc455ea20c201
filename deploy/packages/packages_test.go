// Package packages holds what the packages of distributions are made of; only tests are here. They
// look at dist/, as make packages-short does after make dist.
package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// patience bounds every wait; nothing is asserted on time.
const patience = 5 * time.Minute

// dist returns the one file of dist/ that a pattern names.
func dist(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("../../dist", pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("dist/%s is %q, %v; run make packages-short", pattern, found, err)
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// try runs a command and returns all that it printed.
func try(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	// What a daemon in the background holds open must not keep the test waiting.
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return string(out), err
}

// do runs a command that must succeed.
func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t, name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// says checks that a text has parts, and shows it if not.
func says(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s has no %q:\n%s", what, part, text)
		}
	}
}

// The keys of the emulated bucket.
const (
	keyID  = "LTAItestkeyid000000"
	secret = "a-secret-of-the-test"
)

// bucket serves an emulated bucket and looks objects up in it. Closing it is a store that is gone.
func bucket(t *testing.T) (endpoint string, has func(key string, size int64) bool) {
	t.Helper()
	server, err := ossemu.Open(ossemu.Config{
		Dir: t.TempDir(), Buckets: []string{"bucket"}, Credentials: []ossemu.Credential{{AccessKeyID: keyID, AccessKeySecret: secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint = "http://" + l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	log := slog.New(slog.DiscardHandler)
	source, err := credentials.Open(credentials.Config{Kind: credentials.Static, AccessKeyID: keyID, AccessKeySecret: secret}, log)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: endpoint, Bucket: "bucket", Credentials: source}, nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), source.Close(), server.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return endpoint, func(key string, size int64) bool {
		info, err := client.As(oss.Demand).Head(t.Context(), key)
		return err == nil && info.Size == size
	}
}

// host is a Debian in a directory, with mounts and processes of its own.
type host struct {
	t    *testing.T
	root string // as this process sees it
	pid  string // of the process that holds its namespaces
}

// newHost starts a host that is this machine's Debian: what is written there goes into memory and
// with the test. No systemd runs there, and nothing else but what a test starts.
func newHost(t *testing.T) *host {
	t.Helper()
	script := `set -e; mount -t tmpfs top "$0"; mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" host "$0/root"; cd "$0/root"
mount -t proc proc proc; mount -t tmpfs dev dev; mount -t tmpfs run run; mount -t tmpfs tmp tmp; mkdir -p ssd; mount -t tmpfs ssd ssd
mknod dev/fuse c 10 229; mknod -m 666 dev/null c 1 3; mknod -m 666 dev/urandom c 1 9
mount --bind "$1" media; : >etc/fstab; echo ready; exec chroot . sleep infinity`
	holder := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", script, t.TempDir(), filepath.Dir(dist(t, "*.deb")))
	var complaint bytes.Buffer
	holder.Stderr = &complaint
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill() // and with it all that runs there, and its mounts
		_ = holder.Wait()
	})
	if _, err := out.Read(make([]byte, len("ready"))); err != nil {
		t.Fatalf("no namespace: %v\n%s", err, complaint.String())
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", holder.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(children))
	h := &host{t, "/proc/" + pid + "/root", pid}
	for deadline := time.Now().Add(patience); !h.has("/media/SHA256SUMS"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) { // chroot follows the word
			t.Fatalf("no host: %s", complaint.String())
		}
	}
	return h
}

// try runs a command of sh there.
func (h *host) try(command string) (string, error) {
	h.t.Helper()
	return try(h.t, "nsenter", "--target", h.pid, "--mount", "--pid", "--root", "--wdns=/", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", command)
}

// do runs a command of sh there that must succeed.
func (h *host) do(command string) string {
	h.t.Helper()
	out, err := h.try(command)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// has reports whether a path is there.
func (h *host) has(path string) bool {
	_, err := os.Lstat(filepath.Join(h.root, path))
	return err == nil
}

// TestDebianInstallsMountsUpgradesRemovesAndPurges is the life of the package on a host of its own.
func TestDebianInstallsMountsUpgradesRemovesAndPurges(t *testing.T) {
	h := newHost(t)
	endpoint, inBucket := bucket(t)

	// A version before the one in dist/.
	old := t.TempDir()
	do(t, "./build", dist(t, "pailfs-*-linux-*.tar.gz"), old, "v0.0.0~before")
	before, err := filepath.Glob(old + "/*.deb")
	if err != nil || len(before) != 1 {
		t.Fatalf("%q, %v", before, err)
	}
	do(t, "cp", before[0], h.root+"/before.deb")

	h.do("dpkg --install /before.deb")
	says(t, "the version", h.do("pailfs --version; pailfs-gpu version"), "pailfs ", "pailfs-gpu ")
	h.do("dpkg --verify pailfs")

	// As README.md says: settings in the file that the package brought, keys in one that root reads.
	h.do(fmt.Sprintf(`printf 'endpoint: %s\ncredentials: file\ncredentials_file: /etc/pailfs/credentials.json\ncache_dir: /ssd/pailfs\n' >>/etc/pailfs/pailfs.yaml
umask 077; printf '{"AccessKeyId": "%s", "AccessKeySecret": "%s"}' >/etc/pailfs/credentials.json
mkdir /mnt/data; echo 'oss://bucket /mnt/data pailfs config=/etc/pailfs/pailfs.yaml,_netdev,nofail 0 0' >/etc/fstab
mount -a`, endpoint, keyID, secret))
	says(t, "mountinfo", h.do("cat /proc/self/mountinfo"), " /mnt/data ", "fuse.pailfs")
	h.do("mount -a") // a second time nothing happens
	h.do("echo weights >/mnt/data/checkpoint && pailfs flush /mnt/data/checkpoint")
	if !inBucket("checkpoint", int64(len("weights\n"))) {
		t.Error("what was flushed is not in the bucket")
	}

	// An upgrade keeps settings, and the mount with its daemon.
	mounted := h.do("grep ' /mnt/data ' /proc/self/mountinfo")
	settings := h.do("cat /etc/pailfs/pailfs.yaml")
	h.do("dpkg --install /media/pailfs_*.deb")
	if got := h.do("cat /etc/pailfs/pailfs.yaml"); got != settings {
		t.Errorf("after the upgrade the settings are\n%s", got)
	}
	if got := h.do("grep ' /mnt/data ' /proc/self/mountinfo"); got != mounted {
		t.Errorf("the mount was %s and is %s", mounted, got)
	}
	says(t, "the mount after the upgrade", h.do("cat /mnt/data/checkpoint; pailfs status /mnt/data"), "weights", "oss://bucket")
	h.do("pailfs umount /mnt/data && mount /mnt/data && cat /mnt/data/checkpoint")

	// Removed below a mount: it stays, and its daemon uploads what is written before it ends.
	says(t, "remove", h.do("dpkg --remove pailfs 2>&1"), "/mnt/data stays mounted", "/ssd/pailfs is kept")
	h.do("test ! -e /usr/bin/pailfs && echo more >/mnt/data/later && umount /mnt/data")
	for deadline := time.Now().Add(patience); !inBucket("later", int64(len("more\n"))); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was written after the removal is not in the bucket")
		}
	}
	if !h.has("/etc/pailfs/pailfs.yaml") || !h.has("/etc/pailfs/credentials.json") {
		t.Error("a removal took the configuration")
	}

	// Purged: configuration and keys go, the cache stays.
	h.do("dpkg --purge pailfs")
	if h.has("/etc/pailfs") {
		t.Error("the configuration is there after the purge")
	}
	h.do("test -d /ssd/pailfs")
	// Scripts that run again, as after a failure, have nothing to do.
	for _, script := range []string{"postinst configure", "prerm remove", "prerm upgrade 1", "postrm remove", "postrm purge", "postrm upgrade 1"} {
		name, args, _ := strings.Cut(script, " ")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.root+"/script", text, 0o755); err != nil {
			t.Fatal(err)
		}
		h.do("/script " + args + " && /script " + args)
	}
}

// installed are paths that each package brings.
var installed = []string{
	"/usr/bin/pailfs", "/usr/bin/pailfs-gpu", "/usr/sbin/mount.pailfs", "/usr/sbin/mount.fuse.pailfs", "/etc/pailfs/pailfs.yaml",
	"/usr/lib/systemd/system/pailfs@.service", "/usr/share/man/man1/pailfs.1.gz", "/usr/share/man/man1/pailfs-mount.1.gz",
	"/usr/share/man/man1/pailfs-run.1.gz", "/usr/share/bash-completion/completions/pailfs", "/usr/share/fish/vendor_completions.d/pailfs.fish",
	"/usr/share/doc/pailfs/CONFIGURATION.md", "/usr/share/doc/pailfs/sbom/pailfs.cdx.json",
}

func TestRPMHasWhatDebianHas(t *testing.T) {
	rpm := dist(t, "*.rpm")
	ask := func(args ...string) string { return do(t, "rpm", append(args, "-p", rpm)...) }
	says(t, "the rpm", ask("-ql"), append(installed, "/usr/share/zsh/site-functions/_pailfs")...)
	says(t, "its configuration", ask("-qc"), "/etc/pailfs/pailfs.yaml")
	says(t, "what it needs", ask("-q", "--requires"), "ca-certificates", "glibc >= 2.")
	says(t, "its scripts", ask("-q", "--scripts"), "postinstall", "preuninstall", "postuninstall", "systemctl stop")
	says(t, "its files", ask("-q", "--dump"), "/usr/sbin/mount.pailfs", "../bin/pailfs", "0100755 root root")
	says(t, "its sums", do(t, "rpm", "-K", "--nosignature", rpm), "digests OK")

	deb := do(t, "dpkg-deb", "--contents", dist(t, "*.deb"))
	says(t, "the deb", deb, append(installed, "/usr/share/zsh/vendor-completions/_pailfs")...)
	says(t, "what it says", do(t, "dpkg-deb", "--info", dist(t, "*.deb")), "libc6 (>= 2.", "ca-certificates", "Recommends: fuse3")
}

// TestPackedAgainIsTheSame: the time, the zone and the mask of who packs change nothing.
func TestPackedAgainIsTheSame(t *testing.T) {
	dir := t.TempDir()
	do(t, "sh", "-ec", `umask 077; export TZ=Asia/Shanghai; ./build "$0" "$1"; ../../.ci/python "$1"`, dist(t, "pailfs-*-linux-*.tar.gz"), dir)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("packed are %v, want deb, rpm, wheel and sources", files)
	}
	for _, f := range files {
		again, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		first, err := os.ReadFile(dist(t, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, first) {
			t.Errorf("%s is not that of dist/", f.Name())
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = "../../dist"
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(files)+1 {
		t.Errorf("SHA256SUMS: %v\n%s", err, out)
	}
}

// TestPythonClientInstallsWithoutANetwork: from the wheel in an environment that has nothing, from
// the source in one that has what builds it.
func TestPythonClientInstallsWithoutANetwork(t *testing.T) {
	wheel := dist(t, "*.whl")
	source := dist(t, strings.TrimSuffix(filepath.Base(wheel), "-py3-none-any.whl")+".tar.gz")
	for path, options := range map[string]struct{ venv, pip []string }{
		wheel:  {},
		source: {venv: []string{"--system-site-packages"}, pip: []string{"--no-build-isolation"}},
	} {
		dir := t.TempDir()
		do(t, "/usr/bin/python3", append([]string{"-m", "venv", dir}, options.venv...)...)
		do(t, dir+"/bin/pip", append([]string{"install", "--quiet", "--no-index", "--no-deps", path}, options.pip...)...)
		says(t, path, do(t, dir+"/bin/python", "-P", "-c", "import pailfs, dataset_file_loader; print(pailfs.__file__)"), dir)
	}
}
