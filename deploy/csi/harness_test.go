package csi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// patience bounds every wait of these tests. Nothing is asserted on time.
const patience = 2 * time.Minute

// pailfs is the program that mounts, built by TestMain.
var pailfs string

// driverRole lets this program be a driver, which tests can kill.
const driverRole = "PAILFS_CSI_TEST_DRIVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(driverRole); dir != "" {
		os.Exit(actAsDriver(dir))
	}
	os.Exit(mounttest.Main(func() int {
		dir, err := os.MkdirTemp("", "csi-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		pailfs = filepath.Join(dir, "pailfs")
		build := exec.Command("go", "build", "-o", pailfs, "../../cmd/pailfs")
		build.Stdout, build.Stderr, build.Env = os.Stderr, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build pailfs:", err)
			return 1
		}
		return m.Run()
	}))
}

// actAsDriver serves node and controller below a directory until SIGTERM.
func actAsDriver(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d, err := Open(Config{
		Node: &NodeConfig{
			ID: "node-1", Pailfs: filepath.Join(dir, "pailfs"), RunDir: filepath.Join(dir, "run"), CacheDir: filepath.Join(dir, "cache"),
			Environ: []string{"PATH=" + os.Getenv("PATH")},
		},
		Controller: &ControllerConfig{Pailfs: filepath.Join(dir, "pailfs")},
		Version:    "v0.0.0-test",
		Log:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err == nil {
		var l net.Listener
		if l, err = Listen(filepath.Join(dir, "csi.sock")); err == nil {
			err = d.Serve(ctx, l)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The keys that the emulator knows.
const (
	testKeyID  = "LTAItestkeyid000000"
	testSecret = "this-secret-must-never-be-shown"
	testBucket = "test-bucket"
)

// goodSecret is a Secret with the right keys.
func goodSecret() map[string]string {
	return map[string]string{secretKey: fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, testKeyID, testSecret)}
}

// world is an emulated bucket, and a node with a driver.
type world struct {
	*testing.T
	dir      string
	emulator *ossemu.Server
	endpoint string
	bucket   oss.Bucket
	log      *mounttest.Output
	driver   *exec.Cmd
	conn     *grpc.ClientConn
	spec.IdentityClient
	spec.NodeClient
	spec.ControllerClient
}

// newWorld starts all of it.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, dir: dir, log: new(mounttest.Output)}
	t.Cleanup(w.clean)
	// Mounts here reach those who follow, as below /var/lib/kubelet.
	w.must(unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	w.must(unix.Mount("", dir, "", unix.MS_SHARED, ""))
	w.program("")
	w.startStore()
	w.start()
	conn, err := grpc.NewClient("unix://"+w.path("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.conn = conn
	w.IdentityClient, w.NodeClient, w.ControllerClient = spec.NewIdentityClient(conn), spec.NewNodeClient(conn), spec.NewControllerClient(conn)
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// must fails the test upon an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// startStore serves an emulator with one bucket.
func (w *world) startStore() {
	server, err := ossemu.Open(ossemu.Config{
		Dir: w.TempDir(), Credentials: []ossemu.Credential{{AccessKeyID: testKeyID, AccessKeySecret: testSecret}}, Buckets: []string{testBucket},
	})
	w.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	w.emulator, w.endpoint = server, "http://"+l.Addr().String()
	log := slog.New(slog.DiscardHandler)
	source, err := credentials.Open(credentials.Config{Kind: credentials.Static, AccessKeyID: testKeyID, AccessKeySecret: testSecret}, log)
	w.must(err)
	client, err := oss.Open(oss.Config{Endpoint: w.endpoint, Bucket: testBucket, Credentials: source}, nil, nil, log)
	w.must(err)
	w.bucket = client.As(oss.Demand)
	w.Cleanup(func() {
		if err := errors.Join(client.Close(), source.Close(), server.Close(), <-done); err != nil {
			w.Error(err)
		}
	})
}

// program makes the driver's pailfs: the program itself, behind a line of shell.
func (w *world) program(before string) {
	w.Helper()
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s \"$@\"\n", before, pailfs)
	w.must(os.WriteFile(w.path("pailfs.next"), []byte(script), 0o700))
	w.must(os.Rename(w.path("pailfs.next"), w.path("pailfs")))
}

// start starts the driver and waits until it answers.
func (w *world) start() {
	w.Helper()
	self, err := os.Executable()
	w.must(err)
	d := exec.Command(self)
	d.Env = append(os.Environ(), driverRole+"="+w.dir)
	d.Stdout, d.Stderr = w.log, w.log
	w.must(d.Start())
	w.driver = d
	w.eventually("the driver answers", func() bool {
		c, err := net.Dial("unix", w.path("csi.sock"))
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// kill ends the driver with SIGKILL.
func (w *world) kill() {
	w.Helper()
	_ = w.driver.Process.Kill()
	_ = w.driver.Wait()
}

// restart kills the driver, if it is not dead yet, and starts another one.
func (w *world) restart() {
	w.Helper()
	w.kill()
	w.start()
	w.conn.ResetConnectBackoff()
	w.eventually("the driver is reached", func() bool {
		_, err := w.Probe(w.Context(), &spec.ProbeRequest{})
		return err == nil
	})
}

// clean ends everything, and looks whether a secret was shown.
func (w *world) clean() {
	if w.driver != nil {
		w.kill()
	}
	for _, pid := range w.daemons() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	w.eventually("the daemons are gone", func() bool { return len(w.daemons()) == 0 })
	for {
		t, err := readMounts()
		if err != nil {
			w.Error(err)
			break
		}
		i := slices.IndexFunc(t, func(m *mountinfo.Info) bool {
			return m.Mountpoint == w.dir || strings.HasPrefix(m.Mountpoint, w.dir+"/")
		})
		if i < 0 {
			break
		}
		if err := unix.Unmount(t[i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			w.Error(err)
			break
		}
	}
	if strings.Contains(w.log.String(), testSecret) {
		w.Error("the driver's log shows the secret")
	}
	if w.Failed() {
		w.Logf("the driver's log:\n%s", w.log)
	}
}

// daemons returns the processes of pailfs that serve this world.
func (w *world) daemons() (pids []int) {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.Fatal(err)
	}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		words := bytes.Split(text, []byte{0})
		if len(words) > 1 && filepath.Base(string(words[0])) == "pailfs" && string(words[1]) == "mount" && bytes.Contains(text, []byte(w.dir+"/")) {
			if bytes.Contains(text, []byte(testSecret)) {
				w.Error("a command line shows the secret")
			}
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil {
				w.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// killDaemons ends the daemons with SIGKILL: their mounts stay.
func (w *world) killDaemons() {
	w.Helper()
	for _, pid := range w.daemons() {
		w.must(unix.Kill(pid, unix.SIGKILL))
	}
	w.eventually("the daemons are gone", func() bool { return len(w.daemons()) == 0 })
}

// eventually waits until a condition holds.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("waited in vain until %s", what)
		}
	}
}

// code fails the test unless err has the code.
func (w *world) code(what string, err error, want codes.Code) {
	w.Helper()
	if got := grpcstatus.Code(err); got != want {
		w.Fatalf("%s: %v, want %v: %v", what, got, want, err)
	}
}

// put stores an object.
func (w *world) put(key, content string) {
	w.Helper()
	_, err := w.bucket.Put(w.Context(), key, bytes.NewReader([]byte(content)), oss.PutOptions{})
	w.must(err)
}

// keys returns the keys of the bucket.
func (w *world) keys() (keys []string) {
	w.Helper()
	page, err := w.bucket.List(w.Context(), oss.ListRequest{})
	w.must(err)
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// canMount is a capability to mount, with options.
func canMount(mode spec.VolumeCapability_AccessMode_Mode, options ...string) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{MountFlags: options}},
	}
}

// rwx is the capability that most volumes are asked for.
func rwx(options ...string) *spec.VolumeCapability {
	return canMount(spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, options...)
}

// volumeOf is a volume that a test stages and publishes. Its calls are copies that tests may change.
type volumeOf struct {
	*world
	id         string
	context    map[string]string
	capability *spec.VolumeCapability
	secret     map[string]string
}

// static is a volume of the bucket that nobody provisioned.
func (w *world) static(id string, options ...string) *volumeOf {
	w.Helper()
	w.must(os.MkdirAll(w.path("plugins", id), 0o700))
	w.must(os.MkdirAll(w.path("pods"), 0o700))
	return &volumeOf{w, id, map[string]string{attrSource: "oss://" + testBucket, attrEndpoint: w.endpoint}, rwx(options...), goodSecret()}
}

func (v *volumeOf) staging() string          { return v.path("plugins", v.id, "globalmount") }
func (v *volumeOf) target(pod string) string { return v.path("pods", v.id+"-"+pod) }

func (v *volumeOf) stage() error {
	_, err := v.NodeStageVolume(v.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), VolumeCapability: v.capability, Secrets: v.secret, VolumeContext: v.context,
	})
	return err
}

func (v *volumeOf) unstage() error {
	_, err := v.NodeUnstageVolume(v.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging()})
	return err
}

func (v *volumeOf) publish(pod string, ro bool) error {
	_, err := v.NodePublishVolume(v.Context(), &spec.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), TargetPath: v.target(pod), VolumeCapability: v.capability, VolumeContext: v.context, Readonly: ro,
	})
	return err
}

func (v *volumeOf) unpublish(pod string) error {
	_, err := v.NodeUnpublishVolume(v.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target(pod)})
	return err
}

// gone fails the test unless nothing is left of the volume on the node but, perhaps, its cache.
func (v *volumeOf) gone() {
	v.Helper()
	t, err := readMounts()
	v.must(err)
	for _, m := range t {
		if m.FSType == fsType && strings.HasPrefix(m.Mountpoint, v.dir+"/") {
			v.Errorf("%s is mounted", m.Mountpoint)
		}
	}
	left, err := filepath.Glob(v.path("run", "*"))
	v.must(err)
	if len(left) > 0 {
		v.Errorf("%v are left", left)
	}
	if pids := v.daemons(); len(pids) > 0 {
		v.Errorf("daemons %v are left", pids)
	}
}
