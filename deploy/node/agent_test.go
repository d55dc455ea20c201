package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// agentRun is an agent on a node of a fake API server, beside a real mount.
type agentRun struct {
	*fake.Clientset
	caches *dynamicfake.FakeDynamicClient
	mount  *hangingMount
	t      *testing.T
	dir    string
	cfg    Config
	agent  *Agent
	stop   func()
	down   atomic.Bool
}

func newAgentRun(t *testing.T) *agentRun {
	t.Helper()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "u1", Labels: map[string]string{"kubernetes.io/hostname": "n1", "pailfs.io/ds.00000000": "warm"},
		}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "example.com/mine", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
	a := &agentRun{Clientset: fake.NewClientset(node), mount: mountHanging(t), t: t, dir: t.TempDir()}
	kinds := map[schema.GroupVersionResource]string{NodeCaches: api.KindNodeCache + "List"}
	a.caches = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	fail := func(ktesting.Action) (bool, runtime.Object, error) {
		if a.down.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	}
	a.PrependReactor("*", "*", fail)
	a.caches.PrependReactor("*", "*", fail)
	statfs, pailfs := programs(t, a.dir)
	a.say("status", `{"source":"oss://b","manifest":{"mode":"follow"},"cache":{"ssd":{"limit":1000,"used":500,"state":"ok"}},"writing":{"dirty_files":1,"dirty_bytes":7}}`)
	a.say("warm", `{"path":"train","files":10,"bytes":100,"files_warm":9,"bytes_warm":90}`)
	a.cfg = Config{
		Node: "n1", Namespace: "s", Mounts: []Mount{{"data", a.mount.at}}, Statfs: statfs, Pailfs: pailfs,
		ProbeEvery: 20 * time.Millisecond, ProbePatience: 5 * time.Second, FactsEvery: 20 * time.Millisecond, MeasureEvery: 20 * time.Millisecond,
	}
	return a
}

// say writes what the program pailfs prints.
func (a *agentRun) say(name, text string) {
	a.t.Helper()
	next := filepath.Join(a.dir, name+".new")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(a.dir, name)); err != nil {
		a.t.Fatal(err)
	}
}

// start starts an agent.
func (a *agentRun) start() {
	a.t.Helper()
	agent, err := New(a.cfg, a, a.caches)
	if err != nil {
		a.t.Fatal(err)
	}
	a.agent = agent
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	a.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			a.t.Error(err)
		}
	}
}

func (a *agentRun) node() *v1.Node {
	a.t.Helper()
	n, err := a.Tracker().Get(v1.SchemeGroupVersion.WithResource("nodes"), "", "n1")
	if err != nil {
		a.t.Fatal(err)
	}
	return n.(*v1.Node)
}

// mountReady returns the condition's status and reason.
func (a *agentRun) mountReady() string {
	for _, c := range a.node().Status.Conditions {
		if c.Type == api.ConditionMountReady {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func (a *agentRun) cache() (s api.NodeCacheStatus) {
	o, err := a.caches.Tracker().Get(NodeCaches, "", "n1")
	if err != nil {
		return s
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		a.t.Fatal(err)
	}
	if s, err = api.DecodeNodeCache(content); err != nil {
		a.t.Fatal(err)
	}
	return s
}

func TestTheNodeSaysWhatItsMountIs(t *testing.T) {
	a := newAgentRun(t)
	a.start()
	defer func() { a.stop() }()
	eventually(t, "that the mount is ready", func() bool { return a.mountReady() == "True Ready" })
	if n := a.node(); n.Labels["pailfs.io/mount.data"] != "ready" || n.Labels["kubernetes.io/hostname"] != "n1" || n.Labels["pailfs.io/ds.00000000"] != "" || len(n.Spec.Taints) != 1 {
		t.Errorf("labels %v, taints %v", n.Labels, effects(n.Spec.Taints))
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "d", Annotations: map[string]string{api.AnnotationDataset: "oss://b/train/"}}, Spec: v1.PodSpec{NodeName: "n1"}}
	if _, err := a.CoreV1().Pods("d").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dataset that a pod names", func() bool {
		s := a.cache()
		return len(s.Datasets) == 1 && s.Datasets[0].Name == "b/train" && s.Datasets[0].BytesWarm == 90 && s.Datasets[0].BytesTotal == 100 &&
			s.Mounts[0].UsedBytes == 500 && s.Mounts[0].DirtyBytes == 7
	})
	lease, err := a.CoordinationV1().Leases("s").Get(t.Context(), "pailfs-n1", metav1.GetOptions{})
	if err != nil || lease.OwnerReferences[0].Name != "n1" || lease.Labels[api.LabelAgent] != "node" {
		t.Errorf("lease %v, %v", lease, err)
	}

	a.mount.die(t)
	eventually(t, "the taint and that the daemon is dead", func() bool {
		return a.mountReady() == "False DaemonDead" && slices.Contains(effects(a.node().Spec.Taints), "pailfs.io/mount-unready=DaemonDead:NoSchedule")
	})
	if err := a.CoreV1().Pods("d").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// Another agent goes on: it knows the dataset though no pod names it any more.
	a.stop()
	again := mountHanging(t)
	a.cfg.Mounts[0].Path = again.at
	a.start()
	eventually(t, "that the mount is ready again", func() bool { return a.mountReady() == "True Ready" && len(a.node().Spec.Taints) == 1 })
	eventually(t, "that the dataset is remembered", func() bool {
		s := a.cache()
		return len(s.Datasets) == 1 && s.Datasets[0].Mount == "data" && s.Mounts[0].Path == again.at
	})
	if !slices.ContainsFunc(a.node().Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }) {
		t.Errorf("the kubelet's condition is gone: %v", a.node().Status.Conditions)
	}
}

func TestTheAgentOutlastsTheAPIServer(t *testing.T) {
	a := newAgentRun(t)
	a.down.Store(true)
	a.start()
	defer func() { a.stop() }()
	a.mount.die(t)
	eventually(t, "a request that fails", func() bool { return len(a.Actions()) > 0 })
	a.down.Store(false)
	eventually(t, "what it has to say", func() bool { return a.mountReady() == "False DaemonDead" })
}

func TestTaintsThatOthersWriteMeanwhileStay(t *testing.T) {
	a := newAgentRun(t)
	var once atomic.Bool
	a.PrependReactor("patch", "nodes", func(action ktesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "" || once.Swap(true) {
			return false, nil, nil
		}
		n := a.node().DeepCopy()
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "example.com/new", Effect: v1.TaintEffectNoSchedule})
		n.ResourceVersion = "7"
		if err := a.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
			t.Error(err)
		}
		return true, nil, apiConflict()
	})
	a.mount.die(t)
	a.start()
	defer func() { a.stop() }()
	eventually(t, "all three taints", func() bool {
		keys := map[string]bool{}
		for _, tt := range a.node().Spec.Taints {
			keys[tt.Key] = true
		}
		return slices.Equal(slices.Sorted(maps.Keys(keys)), []string{"example.com/mine", "example.com/new", api.TaintMountUnready})
	})
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	good := Config{Node: "n", Namespace: "s", Mounts: []Mount{{"data", "/mnt/data"}}}
	for about, change := range map[string]func(*Config){
		"no node":         func(c *Config) { c.Node = "" },
		"no namespace":    func(c *Config) { c.Namespace = "" },
		"no mount":        func(c *Config) { c.Mounts = nil },
		"relative path":   func(c *Config) { c.Mounts = []Mount{{"data", "mnt"}} },
		"name of a label": func(c *Config) { c.Mounts = []Mount{{"da/ta", "/mnt"}} },
		"a name twice":    func(c *Config) { c.Mounts = []Mount{{"data", "/a"}, {"data", "/b"}} },
		"dataset":         func(c *Config) { c.Datasets = []string{"b/../c"} },
		"negative":        func(c *Config) { c.EvictMount = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(c, nil, nil); err == nil {
			t.Errorf("%s: taken", about)
		}
	}
	if _, err := New(good, nil, nil); err != nil {
		t.Error(err)
	}
}

// apiConflict is how the API server refuses what was made of an older version.
func apiConflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("it has changed"))
}
