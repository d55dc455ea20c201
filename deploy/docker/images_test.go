// Package docker holds what images are made of; only tests are here.
package docker

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
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// patience bounds every wait; nothing is asserted on time.
const patience = 2 * time.Minute

// images builds the images from bin/ into storage of the test's own, and returns the root of
// a container of each that is tried.
func images(t *testing.T) (mount, kube, csi string) {
	t.Helper()
	dir := t.TempDir()
	storage := []string{"--storage-driver", "vfs", "--root", dir + "/root", "--runroot", dir + "/run"}
	t.Setenv("BUILDAH_OPTS", strings.Join(storage, " "))
	do(t, "./build", "../../bin", "test")
	if err := os.Mkdir(dir+"/registry", 0o755); err != nil {
		t.Fatal(err)
	}
	pushed(t, do(t, "./push", "test", "oci:"+dir+"/registry"))
	root := func(image string) string {
		c := do(t, "buildah", append(storage, "from", "--pull-never", "localhost/"+image+":test")...)
		t.Cleanup(func() { do(t, "buildah", append(storage, "rm", c)...) })
		return do(t, "buildah", append(storage, "mount", c)...)
	}
	return root("pailfs"), root("pailfs-kube"), root("pailfs-csi")
}

// pushed checks the values that name images by what they are: those of the chart.
func pushed(t *testing.T, text string) {
	t.Helper()
	var values struct {
		Image struct {
			Registry string            `yaml:"registry"`
			Tag      string            `yaml:"tag"`
			Digests  map[string]string `yaml:"digests"`
		} `yaml:"image"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&values); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	i, digest := values.Image, regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	if i.Registry == "" || !digest.MatchString(i.Digests["pailfs-csi"]) || i.Tag != "test" || !digest.MatchString(i.Digests["pailfs"]) || !digest.MatchString(i.Digests["pailfs-kube"]) || i.Digests["pailfs"] == i.Digests["pailfs-kube"] {
		t.Errorf("pushed:\n%s", text)
	}
}

// do runs a command and returns what it printed.
func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, complaint.String())
	}
	return strings.TrimSpace(string(out))
}

// inside runs a command in a root as a container runtime would: with its own mounts, and
// devices, and an image that cannot be written.
func inside(root string, args ...string) *exec.Cmd {
	script := `set -e; mkdir -p "$0/proc" "$0/dev" "$0/mnt" "$0/cache" "$0/tmp"; mount --bind "$0" "$0"
mount -t proc proc "$0/proc"; mount -t tmpfs dev "$0/dev"; mknod "$0/dev/fuse" c 10 229
for d in mnt cache tmp; do mount -t tmpfs "$d" "$0/$d"; done
mount -o remount,bind,ro "$0"; exec chroot "$0" "$@"`
	return exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, root}, args...)...)
}

// The keys of the emulated bucket.
const (
	keyID  = "LTAItestkeyid000000"
	secret = "a-secret-of-the-test"
)

// bucket serves an emulated bucket b, and looks objects up in it.
func bucket(t *testing.T) (endpoint string, stat func(key string) (oss.Object, error)) {
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
	return endpoint, func(key string) (oss.Object, error) {
		info, err := client.As(oss.Demand).Head(t.Context(), key)
		return info.Object, err
	}
}

func TestImagesMount(t *testing.T) {
	mount, kube, csi := images(t)
	endpoint, stat := bucket(t)

	// The mount's image, as the DaemonSet runs it: keys in a file, and privileges dropped.
	keys := filepath.Join(mount, "etc/pailfs-keys")
	if err := os.Mkdir(keys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keys+"/credentials", fmt.Appendf(nil, `{"AccessKeyId": %q, "AccessKeySecret": %q}`, keyID, secret), 0o400); err != nil {
		t.Fatal(err)
	}
	var complaint bytes.Buffer
	daemon := inside(mount, "/usr/local/bin/pailfs", "mount", "--mkdir", "--drop-privileges", "--credentials", "file", "--credentials-file", "/etc/pailfs-keys/credentials",
		"--endpoint", endpoint, "--cache-dir", "/cache/data", "oss://bucket", "/mnt/data")
	daemon.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
	daemon.Stderr = &complaint
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	defer func() { _ = daemon.Process.Signal(syscall.SIGKILL) }()
	in := func(args ...string) ([]byte, error) {
		enter := append([]string{"-t", fmt.Sprint(daemon.Process.Pid), "-m", "-r", "-w"}, args...)
		return exec.Command("nsenter", enter...).CombinedOutput()
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, err := in("/usr/local/bin/pailfs", "status", "/mnt/data") // the startup probe
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no mount: %v\n%s\n%s", err, out, complaint.String())
		}
	}
	seen := fmt.Sprintf("/proc/%d/root/mnt/data", daemon.Process.Pid)
	if err := os.WriteFile(filepath.Join(seen, "checkpoint"), []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	// What preStop runs: the file is in the bucket when it returns.
	if out, err := in("/usr/local/bin/pailfs", "umount", "--timeout", "4m", "/mnt/data"); err != nil {
		t.Fatalf("umount: %v\n%s\n%s", err, out, complaint.String())
	}
	if o, err := stat("checkpoint"); err != nil || o.Size != int64(len("weights")) {
		t.Errorf("in the bucket is %+v, %v", o, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the daemon ended with %v\n%s", err, complaint.String())
		}
	case <-time.After(patience):
		t.Error("the daemon did not end")
	}

	// The agent's image: every program runs there, pailfs-gpu with its C library.
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pailfs", "version"}, "pailfs"},
		{[]string{"pailfs-kube", "version"}, "pailfs-kube"},
		{[]string{"pailfs-gpu", "version"}, "pailfs-gpu"},
		{[]string{"pailfs-kube", "own", "/mnt", "65532"}, ""},
	} {
		out, err := inside(kube, append([]string{"/usr/local/bin/" + c.args[0]}, c.args[1:]...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
	// The driver's image has the program with which it mounts.
	for _, c := range [][]string{{"pailfs", "version"}, {"pailfs-csi", "version"}} {
		out, err := inside(csi, append([]string{"/usr/local/bin/" + c[0]}, c[1:]...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c[0]) {
			t.Errorf("%v: %v\n%s", c, err, out)
		}
	}
	gpu, err := inside(kube, "/usr/local/bin/pailfs", "gpu", "--json").Output()
	if !strings.Contains(string(gpu), `"health"`) {
		t.Errorf("pailfs gpu in the agent's image: %v\n%s", err, gpu)
	}
}
