package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long anything may take before a test gives it up: far longer than it
// does on a busy machine of two cores.
const patience = 3 * time.Minute

// token authenticates the tests and the controller manager as members of system:masters. What is
// of pailfs has the accounts that are deployed (accounts_test.go).
const token = "e2e"

// schedulerName is the profile with the plugin; default-scheduler is the stock one beside it.
const schedulerName = "pailfs-scheduler"

// controlPlane is the processes of a control plane and clients of it.
type controlPlane struct {
	dir, bin     string
	parts        map[string]*part
	kubeconfig   string
	config       *rest.Config
	kube         *kubernetes.Clientset
	dynamic      dynamic.Interface
	schedulerURL string
	// schedulerKubeconfig is the kubeconfig of the scheduler's account, schedulerFlags what it is
	// started with beside its configuration.
	schedulerKubeconfig string
	schedulerFlags      []string
	markers             atomic.Int64
}

// part is one process.
type part struct {
	args []string
	cmd  *exec.Cmd
	done chan struct{}
}

// shared is the control plane of all tests.
var shared *controlPlane

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = start(); err != nil {
			fmt.Fprintf(os.Stderr, "start a control plane: %v\n", err)
			shared.stop()
			return 1
		}
		code := m.Run()
		if code != 0 {
			shared.logs()
		}
		shared.stop()
		return code
	}())
}

// start brings a control plane up.
func start() (*controlPlane, error) {
	c := &controlPlane{parts: map[string]*part{}}
	var err error
	if c.bin, err = filepath.Abs("../../../../bin"); err != nil {
		return c, err
	}
	if _, err := os.Stat(filepath.Join(c.bin, "kubecp")); err != nil {
		return c, fmt.Errorf("%w: run make e2e-kube or make e2e-kube-short", err)
	}
	if c.dir, err = os.MkdirTemp("", "pailfs-e2e-"); err != nil {
		return c, err
	}
	if err := c.keys(); err != nil {
		return c, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return c, err
	}
	etcd, api := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	c.schedulerURL = fmt.Sprintf("https://127.0.0.1:%d", ports[3])
	c.config = &rest.Config{Host: api, BearerToken: token, QPS: 5000, Burst: 5000, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if c.kube, err = kubernetes.NewForConfig(c.config); err != nil {
		return c, err
	}
	if c.dynamic, err = dynamic.NewForConfig(c.config); err != nil {
		return c, err
	}
	c.kubeconfig = c.kubeconfigOf("admin", token)
	if _, err := clientcmd.LoadFromFile(c.kubeconfig); err != nil {
		return c, err
	}
	c.run("etcd", c.path("etcd"), etcd, fmt.Sprintf("http://127.0.0.1:%d", ports[1]))
	c.run("apiserver", "--etcd-servers="+etcd, fmt.Sprintf("--secure-port=%d", ports[2]), "--bind-address=127.0.0.1", "--cert-dir="+c.path("certs"),
		"--token-auth-file="+c.file("tokens", token+",e2e,e2e,system:masters\n"), "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://e2e", "--service-account-key-file="+c.path("key"), "--service-account-signing-key-file="+c.path("key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition", "--allow-privileged",
		"--enable-priority-and-fairness=false", "--watch-cache=true", "--v=0")
	if err := c.ready(); err != nil {
		return c, err
	}
	c.run("controller-manager", "--kubeconfig="+c.kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		// Taint eviction looks pods up in an index that the daemonset controller makes.
		"--controllers=job-controller,taint-eviction-controller,daemonset-controller,garbage-collector-controller")
	if err := c.install(); err != nil {
		return c, err
	}
	if err := c.deployAccounts(); err != nil {
		return c, err
	}
	if c.schedulerKubeconfig, err = c.kubeconfigOfAccount("pailfs-scheduler", nil); err != nil {
		return c, err
	}
	c.schedulerFlags = []string{
		fmt.Sprintf("--secure-port=%d", ports[3]), "--bind-address=127.0.0.1", "--cert-dir=" + c.path("scheduler-certs"), "--authorization-always-allow-paths=/metrics,/healthz",
		"--authentication-kubeconfig=" + c.schedulerKubeconfig, "--authorization-kubeconfig=" + c.schedulerKubeconfig, "--v=2",
	}
	c.run("scheduler", append([]string{"--config=" + c.file("scheduler.yaml", schedulerConfig(c.schedulerKubeconfig))}, c.schedulerFlags...)...)
	return c, nil
}

// kubeconfigOf writes how whoever has a token reaches the API server.
func (c *controlPlane) kubeconfigOf(name, token string) string {
	return c.file("kubeconfig-"+name, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: e2e, user: {token: %s}}]
contexts: [{name: e2e, context: {cluster: e2e, user: e2e}}]
current-context: e2e
`, c.config.Host, token))
}

// schedulerConfig is the configuration of deploy/kubernetes/scheduler with a stock profile
// beside and short times.
func schedulerConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 5000, burst: 5000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
- schedulerName: %s
  plugins:
    multiPoint:
      enabled: [{name: Pailfs, weight: 10}]
  pluginConfig:
  - name: Pailfs
    args: {starveAfterSeconds: 5, gangWaitSeconds: 20}
`, kubeconfig, schedulerName)
}

// keys makes the key that service account tokens would be signed with.
func (c *controlPlane) keys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(c.path("key"), block, 0o600)
}

func (c *controlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// file writes a file of the control plane's own directory and returns its path.
func (c *controlPlane) file(name, content string) string {
	if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
		panic(err)
	}
	return c.path(name)
}

// run starts a part; one that ends by itself is found out by whoever waits for what it does.
func (c *controlPlane) run(name string, args ...string) {
	p := &part{args: args, done: make(chan struct{})}
	c.parts[name] = p
	log, err := os.OpenFile(c.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	p.cmd = exec.Command(filepath.Join(c.bin, "kubecp"), append([]string{name}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		panic(err)
	}
	go func() {
		_ = p.cmd.Wait() // its log says why it ended
		log.Close()
		close(p.done)
	}()
}

// kill ends a part at once.
func (c *controlPlane) kill(name string) {
	p := c.parts[name]
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	delete(c.parts, name)
}

// restart kills a part and starts it as it was.
func (c *controlPlane) restart(name string) {
	args := c.parts[name].args
	c.kill(name)
	c.run(name, args...)
}

// stop ends everything.
func (c *controlPlane) stop() {
	for _, name := range []string{"scheduler", "controller-manager", "apiserver", "etcd"} {
		if c.parts[name] != nil {
			c.kill(name)
		}
	}
	if c.dir != "" && os.Getenv("PAILFS_E2E_KEEP") == "" {
		os.RemoveAll(c.dir)
	}
}

// logs prints the ends of the parts' logs.
func (c *controlPlane) logs() {
	for _, name := range []string{"scheduler", "controller-manager", "apiserver"} {
		log, _ := os.ReadFile(c.path(name + ".log"))
		lines := bytes.Split(log, []byte("\n"))
		fmt.Fprintf(os.Stderr, "--- %s ---\n%s\n", name, bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
	}
}

// ready waits for the API server.
func (c *controlPlane) ready() error {
	return eventually(func(ctx context.Context) (bool, error) {
		body, err := c.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(body) == "ok", nil
	})
}

// eventually asks until the answer is yes.
func eventually(ask func(context.Context) (bool, error)) error {
	return wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, ask)
}

// memory returns the resident bytes of a part.
func (c *controlPlane) memory(t *testing.T, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.parts[name].cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("no VmRSS of %s", name)
	return 0
}

// freePorts returns ports that nobody listens on, below those that the system gives to
// connections: some of them are listened on much later.
func freePorts(n int) ([]int, error) {
	const first, end = 20_000, 32_768
	var ports []int
	var failed error
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+mathrand.IntN(end-first)))
		if err != nil {
			failed = err
			continue
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return nil, failed
}
