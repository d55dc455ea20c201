package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// agentNamespace is where the agents' leases lie.
const agentNamespace = "pailfs-system"

// agentUID is the user as whom the agent runs, as deploy/kubernetes/base/agent.yaml says.
const agentUID = 65532

// machine is what a node is made of: a mount, GPUs and an agent, all real but for the
// GPUs' driver (deploy/gpu/testdata). They run with the privileges that they have in
// their pods: the daemon has its keys from a file and drops its capabilities, and the
// agent is not root.
type machine struct {
	t    *testing.T
	c    *controlPlane
	name string
	dir  string
	env  []string
	// endpoint is the object store's.
	endpoint string
	// agentConfig is the kubeconfig of the agent.
	agentConfig string
}

// program is a process of a machine.
type program struct {
	*exec.Cmd
	log   mounttest.Output
	ended chan struct{}
}

// newMachine returns a machine with an object store of its own and a Node, on which
// nothing is mounted yet.
func newMachine(t *testing.T, c *controlPlane, name string, gpus int) *machine {
	t.Helper()
	m := &machine{t: t, c: c, name: name, dir: directory(t, c)}
	key, secret := "LTAI"+rand.Text()[:16], rand.Text()
	m.env = append(os.Environ(), "FAKENVML_STATE="+m.dir+"/gpus", "PAILFS_NVML_LIBRARY="+driver(t), "PAILFS_GPU_STATE_DIR="+m.dir+"/run")
	if err := os.WriteFile(m.dir+"/credentials", fmt.Appendf(nil, `{"AccessKeyId": %q, "AccessKeySecret": %q}`, key, secret), 0o400); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"mnt", "cache", "run"} {
		if err := os.MkdirAll(filepath.Join(m.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.setGPUs(gpus, "")
	store := newProgram(c, "ossemu", "serve", "--dir", m.dir+"/store", "--bucket", "imagenet", "--addr", "127.0.0.1:0")
	store.Env = append(m.env, "OSS_ACCESS_KEY_ID="+key, "OSS_ACCESS_KEY_SECRET="+secret)
	store.run(t)
	ready := regexp.MustCompile(`ready endpoint=(\S+)`)
	c.until(t, "ossemu answers", func(context.Context) (bool, error) {
		if found := ready.FindStringSubmatch(store.log.String()); found != nil {
			m.endpoint = found[1]
		}
		return m.endpoint != "", nil
	})
	h := host{name: name, gpus: gpus, noReport: true, labels: map[string]string{"machine": name}}
	if _, err := c.kube.CoreV1().Nodes().Create(t.Context(), h.node(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.agentConfig = c.agentConfig(t, name)
	if err := os.Chown(m.agentConfig, agentUID, agentUID); err != nil {
		t.Fatal(err)
	}
	// What the pod of the agent begins with.
	if out, err := exec.Command(filepath.Join(c.bin, "pailfs-kube"), "own", m.dir+"/run", fmt.Sprint(agentUID)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

// directory makes a directory, below one that every user may enter, for the time of a test.
func directory(t *testing.T, c *controlPlane) string {
	t.Helper()
	if err := os.Chmod(c.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(c.dir, "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// programs copies what the agent runs to where its user may run it: this checkout may lie
// where only its owner goes.
var programs = func() func(*testing.T) string {
	var once sync.Once
	return func(t *testing.T) string {
		t.Helper()
		dir := shared.path("programs")
		once.Do(func() {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"pailfs", "pailfs-gpu", "pailfs-kube"} {
				if out, err := exec.Command("cp", filepath.Join(shared.bin, name), dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		})
		return dir
	}
}()

// driver compiles the library that stands for the GPUs' driver.
var driver = func() func(*testing.T) string {
	var once sync.Once
	return func(t *testing.T) string {
		t.Helper()
		path := shared.path("libfakenvml.so")
		once.Do(func() {
			out, err := exec.Command("gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o", path, "../../../gpu/testdata/fakenvml.c").CombinedOutput()
			if err != nil {
				t.Fatalf("compile the driver: %v\n%s", err, out)
			}
		})
		return path
	}
}()

// setGPUs says what the driver answers from now on: n GPUs, the last with extra lines.
func (m *machine) setGPUs(n int, extra string) {
	m.t.Helper()
	text := "driver 550.54\n"
	for i := range n {
		text += fmt.Sprintf("gpu GPU-%s-%d\nset pci %d\nset mem_total 80000000000\n", m.name, i, i+1)
	}
	if err := os.WriteFile(m.dir+"/gpus.new", []byte(text+extra), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(m.dir+"/gpus.new", m.dir+"/gpus"); err != nil {
		m.t.Fatal(err)
	}
}

// start runs a program of the machine until the test ends.
func (m *machine) start(name string, args ...string) *program {
	m.t.Helper()
	p := newProgram(m.c, name, args...)
	p.Env = m.env
	p.run(m.t)
	return p
}

// newProgram returns a program of pailfs that does not run yet.
func newProgram(c *controlPlane, name string, args ...string) *program {
	return &program{Cmd: exec.Command(filepath.Join(c.bin, name), args...), ended: make(chan struct{})}
}

// run starts a program, which ends with the test at the latest.
func (p *program) run(t *testing.T) {
	t.Helper()
	p.Stdout, p.Stderr = &p.log, &p.log
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Setpgid = true
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // its log says why it ended
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s wrote:\n%s", strings.Join(p.Args, " "), text[max(0, len(text)-4000):])
		}
	})
}

// kill ends a program and its children at once.
func (p *program) kill() {
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.ended
}

// mount mounts the machine's bucket.
func (m *machine) mount() *program {
	m.t.Helper()
	at := m.dir + "/mnt"
	p := m.start("pailfs", "mount", "oss://imagenet", at, "--endpoint", m.endpoint, "--cache-dir", m.dir+"/cache", "--cache-size", "256MiB",
		"--allow-other", "--credentials", "file", "--credentials-file", m.dir+"/credentials", "--drop-privileges")
	m.t.Cleanup(func() {
		p.kill()
		_ = syscall.Unmount(at, syscall.MNT_DETACH) // it may not be mounted
	})
	m.c.until(m.t, "the bucket is mounted", func(ctx context.Context) (bool, error) {
		select {
		case <-p.ended:
			return false, fmt.Errorf("pailfs ended: %s", p.log.String())
		default:
		}
		status := exec.CommandContext(ctx, filepath.Join(m.c.bin, "pailfs"), "status", at)
		status.Env = m.env
		return status.Run() == nil, nil
	})
	return p
}

// agent starts the machine's node agent, with more flags.
func (m *machine) agent(more ...string) *program {
	m.t.Helper()
	p := newProgram(m.c, "pailfs-kube", "node", "--http", "127.0.0.1:0", "--kubeconfig", m.agentConfig, "--node", m.name, "--namespace", agentNamespace,
		"--mount", "data="+m.dir+"/mnt", "--dataset", "imagenet/train", "--evict-after", "2s", "--evict-gpu-after", "2s")
	p.Args = append(p.Args, more...)
	p.Path = filepath.Join(programs(m.t), "pailfs-kube")
	p.Env = m.env
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: agentUID, Gid: agentUID}}
	p.run(m.t)
	return p
}

// node waits until the machine's Node is as wanted.
func (m *machine) node(what string, is func(*v1.Node) bool) {
	m.t.Helper()
	m.c.until(m.t, m.name+": "+what, func(ctx context.Context) (bool, error) {
		n, err := m.c.kube.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		return err == nil && is(n), err
	})
}

// condition reports whether a node has a condition of a type and status.
func condition(n *v1.Node, kind string, status v1.ConditionStatus) bool {
	for _, c := range n.Status.Conditions {
		if string(c.Type) == kind {
			return c.Status == status
		}
	}
	return false
}

// tainted reports whether a node has a taint with an effect.
func tainted(n *v1.Node, key string, effect v1.TaintEffect) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == key && taint.Effect == effect {
			return true
		}
	}
	return false
}
