package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

func TestLabelsAreNotBelieved(t *testing.T) {
	c := setup(t)
	liar := well("liar", 8)
	liar.mountReady = "False"
	liar.labels = map[string]string{api.MountLabel("data"): api.LabelReady, api.DatasetLabel("imagenet/train"): api.LabelWarm}
	liar.warm = map[string]int64{"imagenet/train": 100}
	nobody := well("nobody", 8)
	nobody.mountReady, nobody.gpuHealthy, nobody.noReport, nobody.labels = "", "", true, liar.labels
	c.add(t, liar, nobody, well("honest", 2))
	for i := range 2 {
		name := fmt.Sprintf("trainer-%d", i)
		c.create(t, pod(name, "imagenet/train"))
		if node := c.bound(t, name); node != "honest" {
			t.Errorf("%s is on %s", name, node)
		}
	}
	// The third has no place: there is none that may be trusted.
	c.create(t, pod("trainer-2", "imagenet/train"))
	c.refusal(t, "trainer-2", "Insufficient nvidia.com/gpu")
}

func TestStaleReportsAreNotWarm(t *testing.T) {
	c := setup(t)
	stale := well("stale", 8)
	stale.warm, stale.observed = map[string]int64{"imagenet/train": 100}, time.Now().Add(-time.Hour)
	fresh := well("fresh", 8)
	fresh.warm = map[string]int64{"imagenet/train": 90}
	c.add(t, stale, fresh)
	c.settled(t)
	c.create(t, pod("trainer", "imagenet/train"))
	if node := c.bound(t, "trainer"); node != "fresh" {
		t.Errorf("trainer is on %s, of which nothing is known since an hour", node)
	}
}

func TestPodsThatSayNothingAreLeftAlone(t *testing.T) {
	c := setup(t)
	bare := well("bare", 8)
	bare.mountReady, bare.gpuHealthy, bare.noReport = "", "", true
	c.add(t, bare)
	c.create(t, pod("any", ""))
	c.bound(t, "any")
}

func TestSilentAgentsNodeGetsNoPod(t *testing.T) {
	c := setup(t)
	silent := well("silent", 8)
	silent.warm = map[string]int64{"imagenet/train": 100}
	silent.mountReady = "Unknown" // what the controller writes, before its taint is there
	c.add(t, silent, well("well", 1))
	c.create(t, pod("trainer", "imagenet/train"))
	if node := c.bound(t, "trainer"); node != "well" {
		t.Errorf("trainer is on %s", node)
	}
}

func TestPodGoesOnWhenAMountRecovers(t *testing.T) {
	c := setup(t)
	h := well("gpu-a", 8)
	h.mountReady = "False"
	c.add(t, h)
	c.create(t, pod("trainer", "imagenet/train"))
	c.refusal(t, "trainer", `dataset "imagenet/train" is mounted on 1 node, and none of them may run the pod (gpu-a: MountReady is False (E2E))`)
	h.mountReady = "True"
	c.set(t, h)
	c.bound(t, "trainer")
}

func TestPlacementOutlivesARestartOfTheAPIServer(t *testing.T) {
	c := setup(t)
	warm, dead := well("warm", 8), well("dead", 8)
	warm.warm = map[string]int64{"imagenet/train": 100}
	dead.warm, dead.mountReady = warm.warm, "False"
	c.add(t, warm, dead, well("cold", 8))
	c.settled(t)
	c.create(t, pod("before", "imagenet/train"))
	if node := c.bound(t, "before"); node != "warm" {
		t.Errorf("before the restart: %s", node)
	}
	c.restart("apiserver")
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
	// Who lost the server comes back ever more rarely, and a report is believed for 40 s.
	c.settled(t)
	c.set(t, warm)
	c.settled(t)
	c.create(t, pod("after", "imagenet/train"))
	if node := c.bound(t, "after"); node != "warm" {
		t.Errorf("after the restart: %s", node)
	}
}

func TestPlacementOutlivesARestartOfTheScheduler(t *testing.T) {
	c := setup(t)
	warm := well("warm", 1)
	warm.warm = map[string]int64{"imagenet/train": 100}
	dead := well("dead", 8)
	dead.mountReady = "False"
	c.add(t, warm, dead)
	c.create(t, pod("before", "imagenet/train"))
	c.bound(t, "before")
	c.restart("scheduler")
	c.create(t, pod("after", "imagenet/train"))
	c.refusal(t, "after", "Insufficient nvidia.com/gpu")
	if err := c.kube.CoreV1().Pods(namespace).Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if node := c.bound(t, "after"); node != "warm" {
		t.Errorf("after is on %s", node)
	}
}

func TestHeldPodIsReleasedWhenTheWarmNodesDoNotTakeIt(t *testing.T) {
	c := setup(t)
	warm := well("warm", 8)
	warm.warm = map[string]int64{"imagenet/train": 100}
	c.add(t, warm, well("cold", 8))
	c.settled(t)
	// The plugin does not know anti-affinity: only the guard lets the second go elsewhere.
	for i := range 2 {
		p := pod(fmt.Sprintf("trainer-%d", i), "imagenet/train")
		p.Labels = map[string]string{"app": "x"}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}, TopologyKey: v1.LabelHostname},
		}}}
		c.create(t, p)
		if node, want := c.bound(t, p.Name), []string{"warm", "cold"}[i]; node != want {
			t.Errorf("%s is on %s, want %s", p.Name, node, want)
		}
	}
}
