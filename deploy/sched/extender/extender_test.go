package extender

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/sched"
)

// fixture has a warm node, a cold one and one whose mount is dead.
func fixture() *Handler {
	c := sched.New(sched.Config{})
	for name, status := range map[string]string{"warm": "True", "cold": "True", "dead": "False"} {
		c.SetNode(sched.Node{
			Name: name, Capacity: sched.Resources{"nvidia.com/gpu": 8},
			MountReady: sched.Condition{Status: status, Reason: "Test", Heartbeat: time.Now()},
			GPUHealthy: sched.Condition{Status: "True", Heartbeat: time.Now()},
		})
		report := api.NodeCacheStatus{ObservedAt: time.Now(), Mounts: []api.MountStatus{{Name: "data", Source: "oss://b", Ready: true, CapacityBytes: 1000}}}
		if name != "cold" {
			report.Datasets = []api.DatasetStatus{{Name: "b/train", BytesWarm: 100, BytesTotal: 100}}
		}
		c.SetReport(name, report)
	}
	return New(c)
}

// ask sends what kube-scheduler sends and decodes the answer.
func ask[T any](t *testing.T, h *Handler, path string, pod *v1.Pod) T {
	t.Helper()
	body, err := json.Marshal(wire.ExtenderArgs{Pod: pod, NodeNames: &[]string{"warm", "cold", "dead"}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	var reply T
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// trainer is a pod of one GPU with annotations, given as pairs.
func trainer(pairs ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trainer", UID: "u", Annotations: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = pairs[i+1]
	}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	return p
}

func TestFilter(t *testing.T) {
	every := func(why string) wire.FailedNodesMap {
		return wire.FailedNodesMap{"warm": why, "cold": why, "dead": why}
	}
	for _, test := range []struct {
		name    string
		pod     *v1.Pod
		want    []string
		refused wire.FailedNodesMap
	}{
		{"not ours", trainer(), []string{"warm", "cold", "dead"}, nil},
		{"a dead mount", trainer(api.AnnotationDataset, "b/train"), []string{"warm", "cold"}, wire.FailedNodesMap{"dead": "MountReady is False (Test)"}},
		{"no such mount", trainer(api.AnnotationDataset, "c/train"), []string{}, every(
			`no mount shows dataset "c/train" on 3 nodes; mounts show b: name a dataset below one of these in the annotation, or mount that bucket`)},
		{"no dataset's name", trainer(api.AnnotationDataset, "b//c"), []string{}, every(
			`annotation pailfs.io/dataset: dataset "b//c": want BUCKET or BUCKET/PREFIX, as in imagenet/train`)},
		{"a gang", trainer(api.AnnotationDataset, "b/train", sched.AnnotationGangSize, "2", sched.AnnotationGang, "g"), []string{}, every(
			`annotation pailfs.io/gang-size: an extender cannot place pods together: set schedulerName to pailfs-scheduler`)},
	} {
		got := ask[wire.ExtenderFilterResult](t, fixture(), "/filter", test.pod)
		want := wire.ExtenderFilterResult{NodeNames: &test.want, FailedAndUnresolvableNodes: test.refused}
		if len(got.FailedAndUnresolvableNodes) == 0 {
			got.FailedAndUnresolvableNodes = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestPrioritize(t *testing.T) {
	got := ask[wire.HostPriorityList](t, fixture(), "/prioritize", trainer(api.AnnotationDataset, "b/train"))
	// 100 × (0.6 warm + 0.2 × 0.9 free + 0.2 of bandwidth that nothing uses), in tenths.
	want := wire.HostPriorityList{{Host: "warm", Score: 10}, {Host: "cold", Score: 4}, {Host: "dead", Score: 10}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ours (-want +got):\n%s", diff)
	}
	for _, host := range ask[wire.HostPriorityList](t, fixture(), "/prioritize", trainer()) {
		if host.Score != 0 {
			t.Errorf("a pod that says nothing: %v", host)
		}
	}
}

func TestWrongRequestsAreAnswered(t *testing.T) {
	for body, want := range map[string]string{
		"{":          "want the pod and the names of nodes",
		"{}":         "want the pod and the names of nodes",
		`{"Pod":{}}`: "set nodeCacheCapable: true",
	} {
		w := httptest.NewRecorder()
		fixture().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/filter", strings.NewReader(body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	unread := fixture()
	unread.synced = func() bool { return false }
	w := httptest.NewRecorder()
	unread.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/filter", strings.NewReader(`{"Pod":{}, "NodeNames":["warm"]}`)))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("before nodes were read: %d", w.Code)
	}
}
