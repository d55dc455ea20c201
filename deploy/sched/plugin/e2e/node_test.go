package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// nodeName is the node with a real kubelet, gateway what its pods reach this host by.
const (
	nodeName = "node-1"
	gateway  = "198.18.77.1"
)

// podImage has a shell, and is what pods wait in.
const podImage = "docker.io/library/e2e:latest"

// nodeControllers are what a node with volumes needs of the controller manager besides.
const nodeControllers = ",persistentvolume-binder-controller,persistentvolume-protection-controller,persistentvolumeclaim-protection-controller," +
	"persistentvolume-attach-detach-controller,namespace-controller,deployment-controller,replicaset-controller,disruption-controller"

// realNode is containerd and kubelet in namespaces of their own, with the driver as it is deployed, and an object store.
type realNode struct {
	*testing.T
	c        *controlPlane
	dir      string
	init     *exec.Cmd
	emulator *ossemu.Server
	endpoint string
	bucket   oss.Bucket
	keyID    string
	secret   string
}

// newNode starts all of it, and waits until kubelet has the driver.
func newNode(t *testing.T) *realNode {
	t.Helper()
	n := &realNode{T: t, c: shared, keyID: "LTAI" + "e2etestkeyid00", secret: "a-secret-of-the-node-test"}
	n.dir = directory(t, n.c)
	n.startStore()
	n.moreControllers()
	n.images()
	n.configure()
	began := time.Now()
	n.start()
	n.c.until(t, "the node is ready", func(ctx context.Context) (bool, error) {
		is, err := n.c.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && condition(is, string(v1.NodeReady), v1.ConditionTrue), err
	})
	t.Logf("node ready after %.1f s", time.Since(began).Seconds())
	n.deploy()
	return n
}

// must fails the test upon an error.
func (n *realNode) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// startStore serves an emulated bucket, which pods reach too.
func (n *realNode) startStore() {
	n.Helper()
	server, err := ossemu.Open(ossemu.Config{
		Dir: n.TempDir(), Credentials: []ossemu.Credential{{AccessKeyID: n.keyID, AccessKeySecret: n.secret}}, Buckets: []string{"bucket"},
	})
	n.must(err)
	l, err := net.Listen("tcp", ":0")
	n.must(err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	port := l.Addr().(*net.TCPAddr).Port
	n.emulator, n.endpoint = server, fmt.Sprintf("http://%s:%d", gateway, port)
	log := slog.New(slog.DiscardHandler)
	source, err := credentials.Open(credentials.Config{Kind: credentials.Static, AccessKeyID: n.keyID, AccessKeySecret: n.secret}, log)
	n.must(err)
	client, err := oss.Open(oss.Config{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port), Bucket: "bucket", Credentials: source}, nil, nil, log)
	n.must(err)
	n.bucket = client.As(oss.Demand)
	n.Cleanup(func() {
		if err := errors.Join(client.Close(), source.Close(), server.Close(), <-done); err != nil {
			n.Error(err)
		}
	})
}

// put writes an object.
func (n *realNode) put(key, content string) {
	n.Helper()
	_, err := n.bucket.Put(n.Context(), key, bytes.NewReader([]byte(content)), oss.PutOptions{})
	n.must(err)
}

// object returns what an object holds, "" and an error if there is none.
func (n *realNode) object(ctx context.Context, key string) (string, error) {
	info, err := n.bucket.Head(ctx, key)
	if err != nil {
		return "", err
	}
	text := make([]byte, info.Size)
	if info.Size > 0 {
		_, err = n.bucket.ReadRange(ctx, oss.RangeRequest{Object: info.Object, Buffer: text})
	}
	return string(text), err
}

// moreControllers has the controller manager do what volumes need, for the time of the test.
func (n *realNode) moreControllers() {
	n.Helper()
	usual := n.c.parts["controller-manager"].args
	more := append(slices.Clone(usual), "--flex-volume-plugin-dir="+filepath.Join(n.dir, "plugins")) // which it makes
	for i, arg := range more {
		if strings.HasPrefix(arg, "--controllers=") {
			more[i] += nodeControllers
		}
	}
	n.c.kill("controller-manager")
	n.c.run("controller-manager", more...)
	n.Cleanup(func() {
		n.c.kill("controller-manager")
		n.c.run("controller-manager", usual...)
	})
}

// command runs a program to its end.
func (n *realNode) command(name string, args ...string) string {
	n.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// images makes the image of the driver as deploy/docker does, and one of a shell.
func (n *realNode) images() {
	n.Helper()
	context, images := filepath.Join(n.dir, "context"), filepath.Join(n.dir, "images")
	n.must(os.MkdirAll(filepath.Join(context, "bin"), 0o755))
	n.must(os.Mkdir(images, 0o755))
	n.command("../../../docker/stage", n.c.bin, context)
	n.command("cp", "/bin/busybox", filepath.Join(context, "bin/sh"))
	shell := filepath.Join(context, "e2e.Containerfile")
	n.must(os.WriteFile(shell, []byte("FROM scratch\nCOPY bin/sh /bin/sh\nENTRYPOINT [\"/bin/sh\", \"-c\", \"trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done\"]\n"), 0o600))
	storage := []string{"--storage-driver", "vfs", "--root", filepath.Join(n.dir, "storage"), "--runroot", filepath.Join(n.dir, "storage-run")}
	for image, file := range map[string]string{"pailfs-csi": "../../../docker/pailfs-csi.Containerfile", "e2e": shell} {
		n.command("buildah", append(storage, "bud", "-q", "--isolation", "chroot", "-f", file, "-t", image, context)...)
		n.command("buildah", append(storage, "push", "-q", "localhost/"+image, "oci-archive:"+filepath.Join(images, image+".tar")+":docker.io/library/"+image+":latest")...)
	}
	n.command("rm", "-rf", filepath.Join(n.dir, "storage"), filepath.Join(n.dir, "storage-run"), context)
}

// configure writes the configuration of containerd, of its network and of kubelet.
func (n *realNode) configure() {
	n.Helper()
	ports, err := freePorts(1)
	n.must(err)
	kubeconfig, err := os.ReadFile(n.c.kubeconfig)
	n.must(err)
	for name, text := range map[string]string{
		"kubeconfig": string(kubeconfig),
		"containerd.toml": fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = %q
`, filepath.Join(n.dir, "containerd"), filepath.Join(n.dir, "opt"), podImage, filepath.Join(n.dir, "cni")),
		"cni/e2e.conflist": fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{"type": "ptp", "ipam":
{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "198.18.77.0/24", "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
			filepath.Join(n.dir, "addresses"), gateway),
		"resolv.conf": "",
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 2s
syncFrequency: 5s
volumePluginDir: %q
resolvConf: %q
`, ports[0], n.cgroup(), filepath.Join(n.dir, "plugins"), filepath.Join(n.dir, "resolv.conf")),
	} {
		path := filepath.Join(n.dir, name)
		n.must(os.MkdirAll(filepath.Dir(path), 0o755))
		n.must(os.WriteFile(path, []byte(text), 0o600))
	}
}

// cgroup is the name of the node's own.
func (n *realNode) cgroup() string { return "pailfs-e2e-" + strconv.Itoa(os.Getpid()) }

// cgroups are the directories of the node's own: one, or one for each controller of version 1.
func (n *realNode) cgroups() (dirs []string) {
	n.Helper()
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(root, n.cgroup())}
	}
	all, err := os.ReadDir(root)
	n.must(err)
	for _, controller := range all {
		if info, err := os.Stat(filepath.Join(root, controller.Name(), "cgroup.procs")); err == nil && !info.IsDir() {
			dirs = append(dirs, filepath.Join(root, controller.Name(), n.cgroup()))
		}
	}
	return dirs
}

// start starts the node, which ends with the test.
func (n *realNode) start() {
	n.Helper()
	for _, dir := range n.cgroups() {
		n.must(os.MkdirAll(dir, 0o755))
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name)); err == nil {
				n.must(os.WriteFile(filepath.Join(dir, name), text, 0o644))
			}
		}
	}
	log, err := os.Create(filepath.Join(n.dir, "node.log"))
	n.must(err)
	script, err := filepath.Abs("testdata/node.sh")
	n.must(err)
	n.init = exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child", script, n.dir, filepath.Join(n.c.bin, "kubecp"))
	n.init.Stdout, n.init.Stderr = log, log
	n.init.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	n.must(n.init.Start())
	n.Cleanup(func() {
		if n.Failed() {
			n.logs()
		}
		_ = n.init.Process.Kill() // --kill-child ends the namespace
		_ = n.init.Wait()         // it was killed
		_ = log.Close()           // what was written is read above
		n.removeCgroups()
		if _, err := n.c.kube.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{}); err == nil {
			if err := n.c.kube.CoreV1().Nodes().Delete(context.Background(), nodeName, metav1.DeleteOptions{}); err != nil {
				n.Error(err)
			}
		}
		n.clean()
	})
}

// removeCgroups removes the node's cgroups, innermost first, when their processes have gone.
func (n *realNode) removeCgroups() {
	for _, dir := range n.cgroups() {
		err := eventually(func(context.Context) (bool, error) {
			var inner []string
			err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					inner = append(inner, path)
				}
				return nil
			})
			for _, d := range slices.Backward(inner) {
				err = errors.Join(err, syscall.Rmdir(d))
			}
			return err == nil, nil
		})
		if err != nil {
			n.Errorf("%s stays: %v", dir, err)
		}
	}
}

// clean removes the objects that a test made, which no kubelet ends any more.
func (n *realNode) clean() {
	none, ctx := int64(0), context.Background()
	now := metav1.DeleteOptions{GracePeriodSeconds: &none}
	all := metav1.ListOptions{}
	err := errors.Join(
		n.c.kube.AppsV1().DaemonSets(agentNamespace).DeleteCollection(ctx, now, all),
		n.c.kube.AppsV1().Deployments(agentNamespace).DeleteCollection(ctx, now, all),
		n.c.kube.CoreV1().Secrets(namespace).DeleteCollection(ctx, now, all),
	)
	for _, ns := range []string{namespace, agentNamespace} {
		err = errors.Join(err, eventually(func(ctx context.Context) (bool, error) {
			if err := n.c.kube.CoreV1().Pods(ns).DeleteCollection(ctx, now, all); err != nil {
				return false, err
			}
			pods, err := n.c.kube.CoreV1().Pods(ns).List(ctx, all)
			return err == nil && len(pods.Items) == 0, err
		}))
	}
	if err != nil {
		n.Errorf("clean up: %v", err)
	}
}

// logs prints the ends of the node's logs, and those of its containers.
func (n *realNode) logs() {
	files := []string{"node.log", "containerd.log", "kubelet.log"}
	pods, _ := filepath.Glob(filepath.Join(n.dir, "log/pods/*/*/*.log")) // the pattern is right
	for _, f := range pods {
		rest, _ := filepath.Rel(n.dir, f) // it is below
		files = append(files, rest)
	}
	for _, f := range files {
		text, _ := os.ReadFile(filepath.Join(n.dir, f))
		lines := bytes.Split(text, []byte("\n"))
		n.Logf("--- %s ---\n%s", f, bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
	}
}

// deploy applies the driver's manifests, and waits until kubelet has it.
func (n *realNode) deploy() {
	n.Helper()
	for _, o := range manifests(n.T, "csi/*.yaml") {
		if o.GetKind() == "Deployment" { // its provisioner is not on this node
			continue
		}
		n.must(small(o))
		n.must(n.c.apply(n.Context(), o, false))
	}
	n.c.until(n.T, "kubelet has the driver", func(ctx context.Context) (bool, error) {
		is, err := n.c.kube.StorageV1().CSINodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && len(is.Spec.Drivers) == 1, ignoreNotFound(err)
	})
	n.c.until(n.T, "the mounter runs", func(ctx context.Context) (bool, error) {
		is, err := n.c.kube.AppsV1().DaemonSets(agentNamespace).Get(ctx, "pailfs-csi-mounter", metav1.GetOptions{})
		return err == nil && is.Status.NumberReady == 1, err
	})
}

// small lets a DaemonSet's pod run on a machine of a test.
func small(o *unstructured.Unstructured) error {
	if o.GetKind() != "DaemonSet" {
		return nil
	}
	var d appsv1.DaemonSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		return err
	}
	d.Spec.Template.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
	o.Object = object
	return err
}

// restartKubelet kills kubelet, which is started again.
func (n *realNode) restartKubelet() {
	n.Helper()
	pids := n.pids("kubecp", "kubelet")
	if len(pids) != 1 {
		n.Fatalf("%d kubelets", len(pids))
	}
	n.must(syscall.Kill(pids[0], syscall.SIGKILL))
}

// pids returns the processes of this node that run a program with a first argument.
func (n *realNode) pids(program, argument string) (pids []int) {
	n.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	n.must(err)
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", n.init.Process.Pid))
	n.must(err)
	for _, f := range lines {
		text, err := os.ReadFile(f)
		args := strings.Split(string(text), "\x00")
		if err != nil || len(args) < 2 || filepath.Base(args[0]) != program || args[1] != argument {
			continue
		}
		if is, err := os.Readlink(filepath.Join(filepath.Dir(f), "ns/pid")); err != nil || is != own {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		n.must(err)
		pids = append(pids, pid)
	}
	return pids
}

// said returns what a pod's container has written.
func (n *realNode) said(pod string) string {
	n.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "log/pods", namespace+"_"+pod+"_*", "main", "*.log"))
	n.must(err)
	var all strings.Builder
	for _, f := range files {
		r, err := os.Open(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		n.must(err)
		text, err := io.ReadAll(r)
		n.must(errors.Join(err, r.Close()))
		for line := range strings.Lines(string(text)) {
			// TIME STREAM TAG TEXT
			if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
				all.WriteString(fields[3])
			}
		}
	}
	return all.String()
}
