package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// namespace is where the tests' pods are.
const namespace = "default"

var (
	nodeCaches = schema.GroupVersionResource{Group: api.Group, Version: api.Version, Resource: api.ResourceNodeCache}
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// nodeCount is how many nodes the large cluster has.
func nodeCount() int {
	if n, err := strconv.Atoi(os.Getenv("PAILFS_E2E_NODES")); err == nil {
		return n
	}
	return 200
}

// install creates the custom resource definition that is deployed.
func (c *controlPlane) install() error {
	raw, err := os.ReadFile("../../../kubernetes/base/crd.yaml")
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, object); err != nil {
		return err
	}
	if _, err := c.dynamic.Resource(crds).Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
		return err
	}
	return eventually(func(ctx context.Context) (bool, error) {
		_, err := c.dynamic.Resource(nodeCaches).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
}

// setup begins a test on an empty cluster with a kubelet, which is empty again after it.
func setup(t *testing.T) *controlPlane {
	t.Helper()
	c := shared
	c.kubelet(t)
	t.Cleanup(func() {
		ctx, background := context.Background(), metav1.DeletePropagationBackground
		none := int64(0)
		now := metav1.DeleteOptions{GracePeriodSeconds: &none, PropagationPolicy: &background}
		err := errors.Join(
			c.kube.BatchV1().Jobs(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
			c.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
			c.kube.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}),
			c.dynamic.Resource(nodeCaches).DeleteCollection(ctx, now, metav1.ListOptions{}),
			eventually(func(ctx context.Context) (bool, error) {
				pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
				if err == nil && len(pods.Items) > 0 {
					err = c.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
				}
				return err == nil && len(pods.Items) == 0, nil
			}),
		)
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return c
}

// host is a node of a test as its agent would show it.
type host struct {
	name string
	gpus int
	// mountReady and gpuHealthy are conditions' statuses; empty: there is none.
	mountReady, gpuHealthy string
	labels                 map[string]string
	taints                 []v1.Taint
	// warm is how much is there of datasets of 100 GB; noReport leaves the PailfsNodeCache out.
	warm     map[string]int64
	source   string
	noReport bool
	observed time.Time
}

// well is a host on which everything is as it should be.
func well(name string, gpus int) host {
	return host{name: name, gpus: gpus, mountReady: "True", gpuHealthy: "True", source: "oss://imagenet"}
}

// node returns the host's Node.
func (h host) node() *v1.Node {
	has := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("96"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
		"nvidia.com/gpu": *resource.NewQuantity(int64(h.gpus), resource.DecimalSI),
	}
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{v1.LabelHostname: h.name}},
		Spec:       v1.NodeSpec{Taints: h.taints},
		Status:     v1.NodeStatus{Capacity: has, Allocatable: has},
	}
	maps.Copy(n.Labels, h.labels)
	n.Status.Conditions = h.conditions()
	return n
}

// conditions are the host's.
func (h host) conditions() []v1.NodeCondition {
	conditions := []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	if h.mountReady != "" {
		conditions = append(conditions, v1.NodeCondition{Type: api.ConditionMountReady, Status: v1.ConditionStatus(h.mountReady), Reason: "E2E", LastHeartbeatTime: metav1.Now()})
	}
	if h.gpuHealthy != "" {
		conditions = append(conditions, v1.NodeCondition{Type: api.ConditionGPUHealthy, Status: v1.ConditionStatus(h.gpuHealthy), Reason: "E2E", LastHeartbeatTime: metav1.Now()})
	}
	return conditions
}

// report returns the host's PailfsNodeCache.
func (h host) report() *unstructured.Unstructured {
	status := api.NodeCacheStatus{ObservedAt: h.observed, Mounts: []api.MountStatus{{
		Name: "data", Source: h.source, Path: "/mnt/data", Ready: h.mountReady == "True", CapacityBytes: 1 << 40,
	}}}
	if status.ObservedAt.IsZero() {
		status.ObservedAt = time.Now()
	}
	for name, bytes := range h.warm {
		status.Datasets = append(status.Datasets, api.DatasetStatus{Name: name, Hash: api.DatasetHash(name), Mount: "data", BytesWarm: bytes * 1e9, BytesTotal: 100e9})
	}
	raw, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(raw, &object); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.APIVersion, "kind": api.KindNodeCache, "metadata": map[string]any{"name": h.name}, "status": object,
	}}
}

// add creates hosts, several at a time, and waits until the scheduler has seen them.
func (c *controlPlane) add(t *testing.T, hosts ...host) {
	t.Helper()
	c.each(t, hosts, func(ctx context.Context, h host) error {
		if _, err := c.kube.CoreV1().Nodes().Create(ctx, h.node(), metav1.CreateOptions{}); err != nil || h.noReport {
			return err
		}
		_, err := c.dynamic.Resource(nodeCaches).Create(ctx, h.report(), metav1.CreateOptions{})
		return err
	})
}

// each does something for every host, 32 at a time.
func (c *controlPlane) each(t *testing.T, hosts []host, do func(context.Context, host) error) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	failed := make(chan error, 1)
	for _, h := range hosts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(t.Context(), h); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// set writes a host's conditions and report anew.
func (c *controlPlane) set(t *testing.T, h host) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": h.conditions()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), h.name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	object := h.report()
	err = eventually(func(ctx context.Context) (bool, error) {
		was, err := c.dynamic.Resource(nodeCaches).Get(ctx, h.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		object.SetResourceVersion(was.GetResourceVersion())
		_, err = c.dynamic.Resource(nodeCaches).Update(ctx, object, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pod is a pod of one GPU that reads a dataset.
func pod(name, dataset string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{}},
		Spec:       spec(1),
	}
	if dataset != "" {
		p.Annotations[api.AnnotationDataset] = dataset
	}
	return p
}

// spec is a pod's that wants GPUs.
func spec(gpus int64) v1.PodSpec {
	none := int64(0)
	gpu := v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI), v1.ResourceCPU: resource.MustParse("1")}
	return v1.PodSpec{
		SchedulerName: schedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &none,
		Containers: []v1.Container{{Name: "main", Image: "trainer", Resources: v1.ResourceRequirements{Requests: gpu, Limits: gpu}}},
	}
}

// create creates a pod.
func (c *controlPlane) create(t *testing.T, p *v1.Pod) {
	t.Helper()
	if _, err := c.kube.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bound waits until a pod has a node and returns it.
func (c *controlPlane) bound(t *testing.T, name string) string {
	t.Helper()
	var node string
	c.until(t, fmt.Sprintf("pod %s has a node", name), func(ctx context.Context) (bool, error) {
		p, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		node = p.Spec.NodeName
		return node != "", nil
	})
	return node
}

// until waits for a condition.
func (c *controlPlane) until(t *testing.T, what string, ask func(context.Context) (bool, error)) {
	t.Helper()
	if err := eventually(ask); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// refusal waits for an event of the scheduler that a pod cannot be placed and says text.
func (c *controlPlane) refusal(t *testing.T, name, text string) {
	t.Helper()
	p, err := c.kube.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.refusalOfAny(t, []v1.Pod{*p}, text)
}

// refusalOfAny waits for such an event of one of several pods.
func (c *controlPlane) refusalOfAny(t *testing.T, pods []v1.Pod, text string) {
	t.Helper()
	var seen []string
	err := eventually(func(ctx context.Context) (bool, error) {
		events, err := c.kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		seen = seen[:0]
		for _, e := range events.Items {
			of := func(p v1.Pod) bool { return p.UID == e.Regarding.UID }
			if e.Reason == "FailedScheduling" && slices.ContainsFunc(pods, of) {
				seen = append(seen, e.Note)
			}
		}
		return slices.ContainsFunc(seen, func(note string) bool { return strings.Contains(note, text) }), nil
	})
	if err != nil {
		t.Fatalf("no event says %q; there are %q", text, seen)
	}
}

// quantity parses an amount.
func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// settled waits until the scheduler knows what was written before: it has placed a pod
// that only a node created now can take, and watches keep the order.
func (c *controlPlane) settled(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("marker-%d", c.markers.Add(1))
	h := well(name, 0)
	h.source = "oss://" + name
	c.add(t, h)
	p := pod(name, name)
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	c.create(t, p)
	c.bound(t, name)
	err := errors.Join(
		c.kube.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
		c.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}),
		c.dynamic.Resource(nodeCaches).Delete(t.Context(), name, metav1.DeleteOptions{}),
	)
	if err != nil {
		t.Fatal(err)
	}
}
