package grafana

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pailfs/pailfs/deploy/node"
	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// patience bounds every wait; nothing is asserted on time.
const patience = 4 * time.Minute

// pailfs is the program that mounts, built by TestMain.
var pailfs string

// TestMain lets the tests' binary stand for the program that an agent calls to ask statfs.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "statfs" {
		if err := node.ServeStatfs(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(mounttest.Main(func() int {
		dir, err := os.MkdirTemp("", "grafana-test-")
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

// eventually waits until holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within %s: %s", patience, what)
		}
	}
}

// mount is a mount of the emulated bucket that serves metrics.
type mount struct {
	t        *testing.T
	emulator *ossemutest.Emulator
	at       string
	// address is where it serves, the same after it was started again.
	address string
	flags   []string
	cmd     *exec.Cmd
	done    chan struct{}
}

var serving = regexp.MustCompile(`msg="serving metrics" address=(\S+)`)

// newMount mounts the bucket with the keys in a file, if one is given.
func newMount(t *testing.T, e *ossemutest.Emulator, cache string, flags ...string) *mount {
	t.Helper()
	m := &mount{t: t, emulator: e, at: t.TempDir(), address: "127.0.0.1:0", flags: append(flags, "--cache-dir="+cache, "--memory=64MiB")}
	m.start()
	t.Cleanup(m.kill)
	return m
}

// start starts the daemon and waits until it serves.
func (m *mount) start() {
	m.t.Helper()
	log := new(mounttest.Output)
	m.cmd = exec.Command(pailfs, append([]string{
		"mount", "oss://" + m.emulator.Bucket, m.at, "--endpoint=" + m.emulator.Endpoint, "--http=" + m.address, "--http-required",
	}, m.flags...)...)
	m.cmd.Env = append(os.Environ(), "OSS_ACCESS_KEY_ID="+m.emulator.AccessKeyID, "OSS_ACCESS_KEY_SECRET="+m.emulator.AccessKeySecret)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // how it ended does not matter
		close(done)
	}(m.cmd, m.done)
	eventually(m.t, "a mount that is ready", func() bool {
		select {
		case <-m.done:
			m.t.Fatalf("the daemon ended: %s", log)
		default:
		}
		at := serving.FindStringSubmatch(log.String())
		if at == nil || !strings.Contains(log.String(), "msg=ready") {
			return false
		}
		m.address = at[1]
		return true
	})
}

// kill ends the daemon without mercy, and takes the dead mount away.
func (m *mount) kill() {
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.done
	_ = unix.Unmount(m.at, unix.MNT_DETACH) // it may be gone
}

// path is that of a file in the mount.
func (m *mount) path(name string) string { return filepath.Join(m.at, name) }

// agent is a node's agent that serves metrics.
type agent struct {
	t    *testing.T
	cfg  node.Config
	dir  string
	stop func()
	// collects is what is served: the agent that was started last.
	collects atomic.Pointer[node.Agent]
	server   *httptest.Server
}

// newAgent looks after a mount, and two GPUs of a made-up program.
func newAgent(t *testing.T, m *mount) *agent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, dir: t.TempDir()}
	a.gpus("Healthy", "Healthy")
	a.cfg = node.Config{
		Node: "n1", Namespace: "s", Mounts: []node.Mount{{Name: "data", Path: m.at}}, Datasets: []string{m.emulator.Bucket + "/data"},
		Statfs: []string{self, "statfs"}, Pailfs: pailfs,
		GPU:        []string{"sh", "-c", "while :; do cat " + a.dir + "/gpus; sleep 0.2; done"},
		ProbeEvery: 200 * time.Millisecond, ProbePatience: 30 * time.Second, FactsEvery: 300 * time.Millisecond, MeasureEvery: time.Second,
	}
	a.start()
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(a.collects.Load())
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		a.server.Close()
		a.stop()
	})
	return a
}

// gpus says how each GPU is.
func (a *agent) gpus(states ...string) {
	a.t.Helper()
	all := "Healthy"
	devices := make([]string, len(states))
	for i, s := range states {
		devices[i] = fmt.Sprintf(`{"health":{"state":%q}}`, s)
		if s != all {
			all = s
		}
	}
	text := fmt.Sprintf(`{"expected":%d,"devices":[%s],"health":{"state":%q}}`+"\n", len(states), strings.Join(devices, ","), all)
	fresh := filepath.Join(a.dir, "fresh")
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(a.dir, "gpus")); err != nil {
		a.t.Fatal(err)
	}
}

// start starts an agent before an API server that is emulated.
func (a *agent) start() {
	a.t.Helper()
	client := fake.NewClientset(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	})
	caches := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{node.NodeCaches: api.KindNodeCache + "List"})
	started, err := node.New(a.cfg, client, caches)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- started.Run(ctx) }()
	a.collects.Store(started)
	stopped := false
	a.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			a.t.Error(err)
		}
	}
}

// prom is a Prometheus.
type prom struct {
	t   *testing.T
	url string
}

// newProm starts one that asks mounts and an agent several times a second.
func newProm(t *testing.T, rules string, targets ...string) *prom {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\n"
	if rules != "" {
		if err := os.WriteFile(filepath.Join(dir, rulesFile), []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		config += "rule_files: [" + rulesFile + "]\n"
	}
	config += fmt.Sprintf("scrape_configs: [{job_name: pailfs, static_configs: [{targets: [%q]}]}]\n", strings.Join(targets, `", "`))
	config = strings.ReplaceAll(config, `\"`, `"`)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		p, taken := startProm(t, dir)
		if !taken {
			return p
		}
	}
}

// startProm starts a Prometheus at a free port; taken says that somebody was quicker.
func startProm(t *testing.T, dir string) (p *prom, taken bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log := new(mounttest.Output)
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn", "--query.lookback-delta=10s")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: install Debian's package prometheus (make deps does)", err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended does not matter
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
	})
	p = &prom{t, "http://" + address}
	eventually(t, "a Prometheus that is ready", func() bool {
		select {
		case <-done:
			if taken = strings.Contains(log.String(), "address already in use"); !taken {
				t.Fatalf("prometheus ended: %s", log)
			}
			return true
		default:
		}
		answer, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return p, taken
}

// get asks the API and decodes what it answers.
func (p *prom) get(path string, into any) {
	p.t.Helper()
	answer, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	document := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil || document.Status != "success" {
		p.t.Fatalf("%s: %v %s", path, err, document.Error)
	}
}

// numbers counts the series of an expression that are a number now.
func (p *prom) numbers(expr string) int {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	n := 0
	for _, series := range data.Result {
		text, _ := series.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && v == v {
			n++
		}
	}
	return n
}

// firing returns the instances for which an alert fires.
func (p *prom) firing(alert string) []string {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get("/api/v1/alerts", &data)
	var all []string
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == alert && a.State == "firing" {
			all = append(all, a.Labels["instance"])
		}
	}
	return all
}

// newEmulator starts an emulator with objects to be read.
func newEmulator(t *testing.T, objects int) *ossemutest.Emulator {
	t.Helper()
	e := ossemutest.Start(t, ossemu.Config{})
	for i := range objects {
		e.Put(fmt.Sprintf("data/%05d", i), make([]byte, 4<<10+i%100))
	}
	return e
}
