package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEveryPodGoesToAWarmNodeWithRoom(t *testing.T) {
	c := setup(t)
	const warm, pods = 10, 72
	var hosts []host
	for i := range nodeCount() {
		h := well(fmt.Sprintf("gpu-%05d", i), 8)
		if i%(nodeCount()/warm) == 0 {
			h.warm = map[string]int64{"imagenet/train": 95}
		}
		hosts = append(hosts, h)
	}
	begin := time.Now()
	c.add(t, hosts...)
	t.Logf("%d nodes created in %v", len(hosts), time.Since(begin).Round(time.Millisecond))
	warmNodes := map[string]bool{}
	keep := time.Now()
	fresh := func() {
		for _, h := range hosts {
			if h.warm != nil {
				warmNodes[h.name] = true
				c.set(t, h)
			}
		}
		keep = time.Now()
		c.settled(t)
	}
	fresh()

	watch, err := c.kube.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	// place creates a pod and returns how long it took until it was bound, and where.
	place := func(p *v1.Pod) (time.Duration, string) {
		begin := time.Now()
		c.create(t, p)
		expired := time.After(patience)
		for {
			select {
			case e, ok := <-watch.ResultChan():
				if !ok {
					t.Fatal("the watch of pods ended")
				}
				if is, ok := e.Object.(*v1.Pod); ok && is.Name == p.Name && is.Spec.NodeName != "" {
					return time.Since(begin), is.Spec.NodeName
				}
			case <-expired:
				t.Fatalf("%s has no node", p.Name)
			}
		}
	}
	var ours, stock []time.Duration
	used := map[string]int{}
	for i := range pods {
		if time.Since(keep) > 20*time.Second {
			fresh() // as the agents do
		}
		plain := pod(fmt.Sprintf("stock-%d", i), "")
		plain.Spec.SchedulerName = v1.DefaultSchedulerName
		// Of the stock scheduler's pods none may take a GPU that ours need.
		delete(plain.Spec.Containers[0].Resources.Requests, "nvidia.com/gpu")
		delete(plain.Spec.Containers[0].Resources.Limits, "nvidia.com/gpu")
		took, _ := place(plain)
		stock = append(stock, took)
		took, node := place(pod(fmt.Sprintf("trainer-%d", i), "imagenet/train"))
		ours = append(ours, took)
		used[node]++
		if !warmNodes[node] {
			t.Errorf("trainer-%d went to %s, which is cold, while %d of 80 GPUs beside warm data were free", i, node, 80-i)
		}
		if used[node] > 8 {
			t.Errorf("%s has %d pods for 8 GPUs", node, used[node])
		}
	}
	slices.Sort(ours)
	slices.Sort(stock)
	t.Logf("%d nodes, %d warm: %d of %d pods on warm nodes; create to bound, median: %v with the plugin, %v with the stock scheduler, difference %v; p95 %v and %v",
		len(hosts), warm, pods, pods, ours[pods/2], stock[pods/2], ours[pods/2]-stock[pods/2], ours[pods*95/100], stock[pods*95/100])
	t.Logf("memory: scheduler %d MiB, apiserver %d MiB, etcd %d MiB", c.memory(t, "scheduler")>>20, c.memory(t, "apiserver")>>20, c.memory(t, "etcd")>>20)
}
