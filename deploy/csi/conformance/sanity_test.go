// Package conformance runs csi-sanity, the test of all drivers, over the programs that were built. make e2e-csi
// builds both and runs it.
package conformance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m.Run)) }

// patience bounds every wait; nothing is asserted on time.
const patience = 2 * time.Minute

const (
	keyID  = "LTAItestkeyid000000"
	secret = "a-secret-of-the-test"
)

// store serves an emulated bucket and returns its address.
func store(t *testing.T) string {
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
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// serve runs a service of the driver until the test ends, and returns its socket.
func serve(t *testing.T, log *mounttest.Output, dir string, args ...string) string {
	t.Helper()
	socket := filepath.Join(dir, args[0]+".sock")
	c := exec.Command("../../../bin/pailfs-csi", append(args, "--endpoint", socket, "--log-level", "debug")...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(unix.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("pailfs-csi %s: %v", args[0], err)
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return "unix://" + socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("pailfs-csi %s does not listen:\n%s", args[0], log)
		}
	}
}

func TestSanity(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	endpoint := store(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, keyID, secret)
	var secrets strings.Builder
	for _, call := range []string{"CreateVolume", "DeleteVolume", "ControllerValidateVolumeCapabilities", "NodeStageVolume", "NodePublishVolume"} {
		fmt.Fprintf(&secrets, "%sSecret:\n  credentials: '%s'\n", call, keys)
	}
	var log mounttest.Output
	node := serve(t, &log, dir, "node", "--node", "node-1", "--run-dir", filepath.Join(dir, "run"), "--cache-dir", filepath.Join(dir, "cache"))
	controller := serve(t, &log, dir, "controller")
	sanity := exec.Command("../../../.ci/tools/bin/csi-sanity", "--ginkgo.no-color", "--csi.endpoint", node, "--csi.controllerendpoint", controller,
		"--csi.mountdir", filepath.Join(dir, "target"), "--csi.stagingdir", filepath.Join(dir, "staging"),
		"--csi.secrets", write("secrets.yaml", secrets.String()),
		"--csi.testvolumeparameters", write("class.yaml", fmt.Sprintf("source: oss://bucket\nendpoint: %s\nonDelete: delete\n", endpoint)))
	out, err := sanity.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("csi-sanity: %v\n%s\nthe driver:\n%s", err, text, &log)
	}
	if strings.Contains(log.String(), secret) {
		t.Error("the driver's log shows the secret")
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Ran ") || strings.Contains(line, "Passed") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "run", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
