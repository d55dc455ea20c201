package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// full says that what takes minutes of waiting is to be shown too.
func full() bool { return nodeCount() >= 10000 }

// trainer is a Job of one pod that is replaced when it is evicted.
func (c *controlPlane) trainer(t *testing.T, name string) {
	t.Helper()
	job := gangJob(name, 1)
	delete(job.Spec.Template.Annotations, "pailfs.io/gang-size")
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}}}
	if _, err := c.kube.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// runsOn waits until a job's pod that is not being deleted runs on a node.
func (c *controlPlane) runsOn(t *testing.T, job, node string) {
	t.Helper()
	c.until(t, fmt.Sprintf("%s runs on %s", job, node), func(ctx context.Context) (bool, error) {
		_, pods, err := c.placed(ctx, job)
		return slices.ContainsFunc(pods, func(p v1.Pod) bool {
			return p.DeletionTimestamp == nil && p.Status.Phase == v1.PodRunning && p.Spec.NodeName == node
		}), err
	})
}

// fails watches a machine's Node while something on it fails and logs how long it takes
// until the Node says so.
func (m *machine) fails(what, kind, taint string, fail func()) {
	m.t.Helper()
	watch, err := m.c.kube.CoreV1().Nodes().Watch(m.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + m.name})
	if err != nil {
		m.t.Fatal(err)
	}
	defer watch.Stop()
	begin := time.Now()
	fail()
	var toCondition, toTaint time.Duration
	expired := time.After(patience)
	for toCondition == 0 || toTaint == 0 {
		select {
		case e, ok := <-watch.ResultChan():
			n, isNode := e.Object.(*v1.Node)
			if !ok || !isNode {
				m.t.Fatalf("the watch of %s ended: %v", m.name, e)
			}
			if toCondition == 0 && condition(n, kind, v1.ConditionFalse) {
				toCondition = time.Since(begin)
			}
			if toTaint == 0 && tainted(n, taint, v1.TaintEffectNoSchedule) {
				toTaint = time.Since(begin)
			}
		case <-expired:
			m.t.Fatalf("%s: condition %s after %v, taint after %v", what, kind, toCondition, toTaint)
		}
	}
	m.t.Logf("%s: %s is False after %v, NoSchedule after %v", what, kind, toCondition.Round(time.Millisecond), toTaint.Round(time.Millisecond))
}

func TestPodsLeaveANodeWhoseMountDies(t *testing.T) {
	c := setup(t)
	m := newMachine(t, c, "machine", 8)
	daemon := m.mount()
	m.agent()
	ready := func(n *v1.Node) bool {
		return condition(n, api.ConditionMountReady, v1.ConditionTrue) && len(n.Spec.Taints) == 0
	}
	m.node("the mount is ready", ready)
	c.trainer(t, "train")
	c.runsOn(t, "train", m.name)
	c.add(t, well("spare", 8))
	m.fails("daemon killed", api.ConditionMountReady, api.TaintMountUnready, daemon.kill)
	begin := time.Now()
	c.runsOn(t, "train", "spare")
	t.Logf("evicted after a grace of 2s and replaced on another node %v after the taint", time.Since(begin).Round(time.Millisecond))
	m.node("pods are evicted", func(n *v1.Node) bool { return tainted(n, api.TaintMountUnready, v1.TaintEffectNoExecute) })
	m.mount()
	m.node("the mount is ready again", ready)
	// The scheduler takes the node again: the other one is full.
	whole := pod("whole", "imagenet/train")
	whole.Spec = spec(8)
	c.create(t, whole)
	if node := c.bound(t, "whole"); node != m.name {
		t.Errorf("whole is on %s", node)
	}
}

// TestAnAgentCountsWhatAnyUserMayRead: it is not root, and has nothing but the mount to ask.
func TestAnAgentCountsWhatAnyUserMayRead(t *testing.T) {
	c := setup(t)
	m := newMachine(t, c, "machine", 8)
	m.mount()
	if err := os.Mkdir(m.dir+"/mnt/train", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.dir+"/mnt/train/shard", make([]byte, 1<<16), 0o644); err != nil {
		t.Fatal(err)
	}
	m.agent("--measure-every", "1s")
	c.until(t, "the dataset is counted", func(ctx context.Context) (bool, error) {
		o, err := c.dynamic.Resource(nodeCaches).Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		s, err := api.DecodeNodeCache(o.Object)
		return err == nil && len(s.Mounts) == 1 && s.Mounts[0].CapacityBytes > 0 && len(s.Datasets) == 1 && s.Datasets[0].BytesTotal == 1<<16, err
	})
}

func TestPodsLeaveANodeWhoseGPUIsLost(t *testing.T) {
	c := setup(t)
	m := newMachine(t, c, "machine", 8)
	m.mount()
	m.agent()
	healthy := func(n *v1.Node) bool {
		return condition(n, api.ConditionGPUHealthy, v1.ConditionTrue) && condition(n, api.ConditionMountReady, v1.ConditionTrue) && len(n.Spec.Taints) == 0
	}
	m.node("all is well", healthy)
	c.trainer(t, "train")
	c.runsOn(t, "train", m.name)
	c.add(t, well("spare", 8))
	m.fails("XID 79", api.ConditionGPUHealthy, api.TaintGPUUnhealthy, func() { m.setGPUs(8, "xid 1 79\n") })
	begin := time.Now()
	c.runsOn(t, "train", "spare")
	t.Logf("evicted after a grace of 2s and replaced on another node %v after the taint", time.Since(begin).Round(time.Millisecond))
	if !full() {
		return // a GPU is well again a minute after an XID at the earliest
	}
	m.setGPUs(8, "")
	m.node("the GPU has recovered", healthy)
}

func TestNodeOfADeadAgentGetsNoPod(t *testing.T) {
	if !full() {
		t.Skip("an agent counts as silent after 40 s: make e2e-kube shows it, TestSilentAgentsNodeGetsNoPod what follows")
	}
	c := setup(t)
	m := newMachine(t, c, "machine", 8)
	m.mount()
	agent := m.agent()
	config, err := c.kubeconfigOfAccount("pailfs-controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.start("pailfs-kube", "controller", "--kubeconfig", config, "--namespace", agentNamespace)
	// A node that takes a pod has told all that it has to tell.
	c.create(t, pod("before", "imagenet/train"))
	c.bound(t, "before")
	begin := time.Now()
	agent.kill()
	m.node("the agent is silent", func(n *v1.Node) bool {
		return condition(n, api.ConditionMountReady, v1.ConditionUnknown) && tainted(n, api.TaintMountUnready, v1.TaintEffectNoSchedule)
	})
	t.Logf("agent killed: MountReady is Unknown and NoSchedule there after %v", time.Since(begin).Round(time.Millisecond))
	c.create(t, pod("trainer", "imagenet/train"))
	c.refusal(t, "trainer", "MountReady is Unknown (AgentSilent)")
	m.agent()
	c.bound(t, "trainer")
}
