package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// mountsOf returns an observation of mounts in the given states.
func mountsOf(reasons ...string) *observation {
	o := &observation{}
	for i, r := range reasons {
		o.mounts = append(o.mounts, mountState{Mount: Mount{Name: fmt.Sprintf("m%d", i), Path: fmt.Sprintf("/mnt/%d", i)}, probed: probed{reason: r, message: "is " + r}})
	}
	return o
}

func TestOneMountThatIsNotReadyMakesTheNodeUnready(t *testing.T) {
	d := judge(mountsOf(api.ReasonReady, api.ReasonStuck, api.ReasonDead), nil, &Config{})
	want := condition{api.ConditionMountReady, v1.ConditionFalse, api.ReasonStuck, "is DaemonStuck; is DaemonDead"}
	if diff := cmp.Diff(want, d.conditions[0], cmp.AllowUnexported(condition{})); diff != "" {
		t.Errorf("condition (-want +got):\n%s", diff)
	}
	if tt := d.taints[0]; !tt.on || tt.key != api.TaintMountUnready || tt.reason != api.ReasonStuck {
		t.Errorf("taint %+v", tt)
	}
	if diff := cmp.Diff(map[string]string{"pailfs.io/mount.m0": "ready"}, d.labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(d.conditions) != 1 {
		t.Errorf("something is said of GPUs that nobody looks after: %+v", d.conditions)
	}
}

func TestAMountThatServesLessWellIsReady(t *testing.T) {
	o := mountsOf(api.ReasonReady)
	o.mounts[0].degraded = "the cache disk is down: EIO"
	d := judge(o, nil, &Config{})
	if c := d.conditions[0]; c.status != v1.ConditionTrue || c.reason != api.ReasonDegraded || !strings.Contains(c.message, "EIO") || d.taints[0].on {
		t.Errorf("%+v, %+v", c, d.taints[0])
	}
}

func TestGPUReadingsBecomeConditions(t *testing.T) {
	for _, c := range []struct {
		about, reading string
		status         v1.ConditionStatus
		reason         string
		taint          bool
		healthy        int
	}{
		{"all well", `{"expected":2,"devices":[{"health":{"state":"Healthy"}},{"health":{"state":"Healthy"}}],"health":{"state":"Healthy"}}`, v1.ConditionTrue, "Healthy", false, 2},
		{"one fell off the bus", `{"expected":2,"devices":[{"health":{"state":"Healthy"}},{"health":{"state":"Unhealthy"}}],
			"health":{"state":"Unhealthy","reasons":[{"code":"XID79","message":"GPU-1: fell off"}]}}`, v1.ConditionFalse, "XID79", true, 1},
		{"slow", `{"expected":1,"devices":[{"health":{"state":"Degraded"}}],"health":{"state":"Degraded","reasons":[{"code":"Hot","message":"95"}]}}`, v1.ConditionTrue, "Hot", false, 1},
		{"a node without", `{"expected":0,"devices":[],"health":{"state":"Unknown","reasons":[{"code":"NoDriver","message":"no driver"}]}}`, v1.ConditionUnknown, "NoGPU", false, 0},
		{"the driver is gone", `{"expected":8,"devices":[],"health":{"state":"Unknown","reasons":[{"code":"NoDriver","message":"no driver"}]}}`, v1.ConditionUnknown, "NoDriver", true, 0},
		{"the driver hangs", `{"time":"2026-01-02T03:04:05Z","expected":0,"devices":null,
			"health":{"state":"Unknown","reasons":[{"state":"Unknown","code":"DriverStuck","message":"the driver has not answered for 30s"}]}}`, v1.ConditionUnknown, "DriverStuck", true, 0},
	} {
		var r reading
		if err := json.Unmarshal([]byte(c.reading), &r); err != nil {
			t.Fatal(err)
		}
		o := mountsOf(api.ReasonReady)
		o.gpus = r.state()
		d := judge(o, nil, &Config{})
		if got := d.conditions[1]; got.status != c.status || got.reason != c.reason || d.taints[1].on != c.taint || o.gpus.healthy != c.healthy {
			t.Errorf("%s: %+v, taint %t, %d healthy", c.about, got, d.taints[1].on, o.gpus.healthy)
		}
	}
}

func TestReadingsThatStopSayNothingAnyMore(t *testing.T) {
	var g gpus
	if g.state(time.Now()) != nil {
		t.Error("something is known before the first reading")
	}
	g.mu.last, g.mu.at = &reading{Expected: 8, Health: verdict{State: gpuHealthy}}, time.Now()
	if s := g.state(time.Now()); !s.works() {
		t.Errorf("fresh: %+v", s)
	}
	if s := g.state(time.Now().Add(readingAge + time.Second)); s.works() || s.verdict != gpuUnknown || s.expected != 8 {
		t.Errorf("stale: %+v", s)
	}
}

func TestLabelsOfDatasetsHaveHysteresis(t *testing.T) {
	for _, c := range []struct {
		warm, total int64
		has, want   string
	}{
		{0, 100, "warm", ""},
		{79, 100, "", "partial"},
		{80, 100, "", "warm"},
		{60, 100, "warm", "warm"},
		{59, 100, "warm", "partial"},
		{79, 100, "partial", "partial"},
		{50, 0, "", "partial"}, // how many there are is not known
	} {
		o := mountsOf(api.ReasonReady)
		o.datasets = []api.DatasetStatus{{Name: "b/d", Hash: api.DatasetHash("b/d"), BytesWarm: c.warm, BytesTotal: c.total}}
		key := api.DatasetLabel("b/d")
		if got := judge(o, map[string]string{key: c.has}, &Config{}).labels[key]; got != c.want {
			t.Errorf("%d of %d bytes on a node labelled %q: label %q, want %q", c.warm, c.total, c.has, got, c.want)
		}
	}
}

func TestLabelsAreFewAndOfTheLargest(t *testing.T) {
	o := mountsOf(api.ReasonReady)
	for i := range 100 {
		name := fmt.Sprintf("b/%d", i)
		o.datasets = append(o.datasets, api.DatasetStatus{Name: name, Hash: api.DatasetHash(name), BytesWarm: int64(i)})
	}
	labels := judge(o, nil, &Config{}).labels
	if len(labels) != maxLabels || labels[api.DatasetLabel("b/99")] == "" || labels[api.DatasetLabel("b/1")] != "" {
		t.Errorf("%d labels", len(labels))
	}
}

func TestWhatTheDaemonSaysIsJudged(t *testing.T) {
	parse := func(text string) *status {
		var s status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		return &s
	}
	before := parse(`{"store":{"requests":[{"count":10}]}}`)
	for _, c := range []struct{ about, text, want string }{
		{"well", `{"store":{"requests":[{"count":20,"errors":{"timeout":1}}]}}`, ""},
		{"idle", `{"store":{"requests":[{"count":10}]}}`, ""},
		{"the store is down", `{"store":{"requests":[{"count":15,"errors":{"timeout":5}}]}}`, "failed all of the last 5 requests"},
		{"the disk is down", `{"cache":{"ssd":{"state":"down","last_error":"EIO"}}}`, "cache disk is down: EIO"},
		{"keys are gone", `{"store":{"credentials":{"error":"denied"}}}`, "credentials cannot be renewed: denied"},
		{"uploads fail", `{"writing":{"failing_count":2}}`, "2 written files cannot be uploaded"},
	} {
		if got := parse(c.text).degraded(before); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.about, got, c.want)
		}
	}
}

func TestADatasetIsFoundInTheMountThatShowsIt(t *testing.T) {
	for _, c := range []struct {
		source, dataset, below string
		shows                  bool
	}{
		{"oss://b", "b/train", "train", true},
		{"oss://b/train/", "b/train", "", true},
		{"oss://b/train", "b/train/a/b", "a/b", true},
		{"oss://b/train", "b/trainer", "", false},
		{"oss://b/train", "b", "", false},
		{"oss://c", "b/train", "", false},
		{"", "b/train", "", false},
	} {
		if below, shows := pathOf(c.source, c.dataset); shows != c.shows || shows && below != c.below {
			t.Errorf("%s in %s: %q, %t", c.dataset, c.source, below, shows)
		}
	}
}
