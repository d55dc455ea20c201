package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/deploy/node/api"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// wellNode is a node on which everything is as it should be.
func wellNode(name string) Node {
	return Node{
		Name: name, Capacity: Resources{"nvidia.com/gpu": 8},
		MountReady: Condition{Status: "True", Reason: "Ready", Heartbeat: noon},
		GPUHealthy: Condition{Status: "True", Reason: "Healthy", Heartbeat: noon},
	}
}

// reportOf is a fresh report of one mount of bucket b with a cache of 1,000 bytes, and
// what is warm of datasets of 100.
func reportOf(warm map[string]int64) api.NodeCacheStatus {
	r := api.NodeCacheStatus{
		ObservedAt: noon,
		Mounts:     []api.MountStatus{{Name: "data", Source: "oss://b", Path: "/mnt/data", Ready: true, CapacityBytes: 1000}},
	}
	for name, bytes := range warm {
		r.Datasets = append(r.Datasets, api.DatasetStatus{Name: name, Mount: "data", BytesWarm: bytes, BytesTotal: 100})
	}
	return r
}

// clusterOf has n well nodes, n0 and on, of which the first are warm of b/train.
func clusterOf(n int, warm ...int64) *Cluster {
	c := New(Config{})
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		c.SetNode(wellNode(name))
		var has map[string]int64
		if i < len(warm) {
			has = map[string]int64{"b/train": warm[i]}
		}
		c.SetReport(name, reportOf(has))
	}
	return c
}

// trainer is a pod of one GPU.
func trainer(dataset string) Pod {
	return Pod{Key: "uid", Name: "default/trainer", Dataset: dataset, Wants: Resources{"nvidia.com/gpu": 1}}
}

// ask asks for n pods where every node has room for so many.
func ask(n, room int) Ask {
	return Ask{Now: noon, Need: n, Room: func(string) int { return room }}
}

func TestChooseNamesWarmNodesWithRoom(t *testing.T) {
	c := clusterOf(1000, 90, 100, 20)
	tests := []struct {
		name string
		ask  Ask
		kind Kind
		want []string
	}{
		{"one pod", ask(1, 8), Warm, []string{"n0", "n1"}},
		{"as many as fit", ask(16, 8), Warm, []string{"n0", "n1"}},
		{"no room on one", Ask{Now: noon, Need: 1, Room: func(n string) int { return len(strings.TrimPrefix(n, "n1")) }}, Warm, []string{"n0"}},
		{"more than fit", ask(20, 8), Partial, []string{"n0", "n1", "n2"}},
	}
	for _, test := range tests {
		got, refusal := c.Choose(trainer("b/train"), test.ask)
		slices.Sort(got.Nodes)
		if refusal != nil || got.Kind != test.kind || !slices.Equal(got.Nodes, test.want) {
			t.Errorf("%s: %v, refusal %v, want %s %v", test.name, got, refusal, test.kind, test.want)
		}
	}
	if got, refusal := c.Choose(trainer("b/train"), ask(30, 8)); refusal != nil || got.Kind != Partial || len(got.Nodes) != 4 {
		t.Errorf("more than holders have room for: %v, %v: want the holders and one cold node", got, refusal)
	}
}

func TestPodWithoutDatasetIsLeftAlone(t *testing.T) {
	c := clusterOf(3)
	c.SetNode(Node{Name: "n1"})
	p := trainer("")
	if got, refusal := c.Choose(p, ask(1, 1)); refusal != nil || got.Nodes != nil {
		t.Errorf("choice is %v, %v", got, refusal)
	}
	if refusal := c.Check(p, "n1", noon); refusal != nil {
		t.Errorf("refused: %v", refusal)
	}
	if _, ok, err := ParsePod(Meta{UID: "u", Annotations: map[string]string{"other": "x"}}, nil, false); ok || err != nil {
		t.Errorf("taken for ours, error %v", err)
	}
}

func TestColdDatasetsSpreadAndReturn(t *testing.T) {
	c := clusterOf(1000)
	used := map[string]int{}
	for i := range 200 {
		p := trainer(fmt.Sprintf("b/shard-%03d", i))
		first, _ := c.Choose(p, ask(1, 8))
		again, _ := c.Choose(p, ask(1, 8))
		if first.Kind != Cold || len(first.Nodes) != 1 || !slices.Equal(first.Nodes, again.Nodes) {
			t.Fatalf("%s: %v, then %v: want one cold node, the same again", p.Dataset, first, again)
		}
		used[first.Nodes[0]]++
	}
	// 200 of 1,000 at random: 181 different ones are expected.
	if len(used) < 150 {
		t.Errorf("200 datasets went to %d nodes", len(used))
	}
	p := trainer("b/large")
	p.Shard = "0"
	zero, _ := c.Choose(p, ask(1, 8))
	p.Shard = "1"
	one, _ := c.Choose(p, ask(1, 8))
	if slices.Equal(zero.Nodes, one.Nodes) {
		t.Errorf("two shards go to %v", zero.Nodes)
	}
}

func TestNodesThatComeAndGoMoveFewColdDatasets(t *testing.T) {
	c := clusterOf(100)
	before := map[string]string{}
	for i := range 100 {
		d := fmt.Sprintf("b/%d", i)
		choice, _ := c.Choose(trainer(d), ask(1, 8))
		before[d] = choice.Nodes[0]
	}
	c.RemoveNode("n17")
	c.SetNode(wellNode("new"))
	c.SetReport("new", reportOf(nil))
	moved := 0
	for d, was := range before {
		choice, _ := c.Choose(trainer(d), ask(1, 8))
		if now := choice.Nodes[0]; now != was {
			moved++
			if was != "n17" && now != "new" {
				t.Errorf("%s moved from %s to %s", d, was, now)
			}
		}
	}
	if moved > 20 {
		t.Errorf("%d of 100 moved", moved)
	}
}

func TestColdDatasetGoesWhereItFits(t *testing.T) {
	c := clusterOf(2)
	p := trainer("b/big")
	p.Bytes = 800
	first, _ := c.Choose(p, ask(1, 8))
	other := trainer("b/other")
	other.Key, other.Bytes = "uid2", 500
	c.Hold(other, first.Nodes[0])
	if then, _ := c.Choose(p, ask(1, 8)); then.Nodes[0] == first.Nodes[0] {
		t.Errorf("%s is chosen although 500 of its 1,000 bytes are promised and 800 are wanted", then.Nodes[0])
	}
}

func TestHeldPodsAreReleasedInTheEnd(t *testing.T) {
	c := clusterOf(50, 100)
	a := ask(1, 8)
	a.Since, a.Attempts = noon.Add(-29*time.Second), 1
	if got, _ := c.Choose(trainer("b/train"), a); got.Kind != Warm {
		t.Errorf("after 29 s: %v", got)
	}
	a.Since = noon.Add(-30 * time.Second)
	if got, _ := c.Choose(trainer("b/train"), a); got.Kind != Any || len(got.Nodes) != 50 {
		t.Errorf("after 30 s: %v, want any of the 50", got)
	}
	// An attempt in vain widens the choice of cold nodes before that.
	a.Since = noon.Add(-time.Second)
	if got, _ := c.Choose(trainer("b/cold"), a); len(got.Nodes) != 9 {
		t.Errorf("second attempt: %v, want 9 nodes", got)
	}
	if got, _ := c.Choose(trainer("b/cold"), ask(1, 0)); got.Kind != Full || len(got.Nodes) != 50 {
		t.Errorf("without room: %v, want all that are healthy", got)
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		node   func(*Node)
		report func(*api.NodeCacheStatus)
		pod    func(*Pod)
		want   Reason
	}{
		{name: "well"},
		{name: "no condition", node: func(n *Node) { n.MountReady = Condition{} }, want: NoAgent},
		{name: "mount dead", node: func(n *Node) { n.MountReady.Status = "False" }, want: MountUnready},
		{name: "agent silent by the controller", node: func(n *Node) { n.MountReady.Status, n.MountReady.Reason = "Unknown", "AgentSilent" }, want: MountUnready},
		{name: "agent and controller silent", node: func(n *Node) { n.MountReady.Heartbeat = noon.Add(-16 * time.Minute) }, want: AgentSilent},
		{name: "condition that nobody dated", node: func(n *Node) { n.MountReady.Heartbeat = time.Time{} }, want: AgentSilent},
		{name: "stale report", report: func(r *api.NodeCacheStatus) { r.ObservedAt = noon.Add(-time.Hour) }},
		{name: "mount of the report dead", report: func(r *api.NodeCacheStatus) { r.Mounts[0].Ready = false }, want: MountUnready},
		{name: "other bucket", report: func(r *api.NodeCacheStatus) { r.Mounts[0].Source = "oss://bucket" }, want: NotMounted},
		{name: "only a prefix with the same beginning", report: func(r *api.NodeCacheStatus) { r.Mounts[0].Source = "oss://b/tra" }, want: NotMounted},
		{name: "a mount of a source that cannot be read", report: func(r *api.NodeCacheStatus) { r.Mounts[0].Source = "" }, want: NotMounted},
		{name: "just the dataset", report: func(r *api.NodeCacheStatus) { r.Mounts[0].Source = "oss://b/train/" }},
		{name: "another mount is wanted", pod: func(p *Pod) { p.Mount = "scratch" }, want: NotMounted},
		{name: "GPU lost", node: func(n *Node) { n.GPUHealthy.Status, n.GPUHealthy.Reason = "False", "XID79" }, want: GPUUnhealthy},
		{name: "GPU unreadable", node: func(n *Node) { n.GPUHealthy.Status, n.GPUHealthy.Reason = "Unknown", "Unreadable" }, want: GPUUnhealthy},
		{name: "no GPU expected", node: func(n *Node) { n.GPUHealthy.Status, n.GPUHealthy.Reason = "Unknown", "NoGPU" }},
		{name: "GPU lost, CPU pod", node: func(n *Node) { n.GPUHealthy.Status = "False" }, pod: func(p *Pod) { p.Wants = Resources{"cpu": 1} }},
		{name: "GPU lost, claimed", node: func(n *Node) { n.GPUHealthy.Status = "False" }, pod: func(p *Pod) { p.Wants, p.Claims = nil, true }, want: GPUUnhealthy},
		{name: "GPU lost, MIG instance", node: func(n *Node) { n.GPUHealthy.Status = "False" }, pod: func(p *Pod) { p.Wants = Resources{"nvidia.com/mig-1g.10gb": 1} }, want: GPUUnhealthy},
	}
	for _, test := range tests {
		c, n, r, p := New(Config{}), wellNode("n"), reportOf(nil), trainer("b/train")
		if test.node != nil {
			test.node(&n)
		}
		if test.report != nil {
			test.report(&r)
		}
		if test.pod != nil {
			test.pod(&p)
		}
		c.SetNode(n)
		c.SetReport("n", r)
		var got Reason
		if refusal := c.Check(p, "n", noon); refusal != nil {
			got = refusal.Reason
			if strings.Contains(refusal.Message, "%!") || refusal.Message == "" {
				t.Errorf("%s: message %q", test.name, refusal.Message)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestNodeThatRecoversIsChosenAgain(t *testing.T) {
	c := clusterOf(1, 100)
	dead := wellNode("n0")
	dead.MountReady.Status = "False"
	if better := c.SetNode(dead); better {
		t.Error("a mount that dies is no reason to try again")
	}
	if _, refusal := c.Choose(trainer("b/train"), ask(1, 1)); refusal == nil || refusal.Reason != MountUnready {
		t.Errorf("refusal is %v", refusal)
	}
	if better := c.SetNode(wellNode("n0")); !better {
		t.Error("a mount that recovers is a reason to try again")
	}
	if got, refusal := c.Choose(trainer("b/train"), ask(1, 1)); refusal != nil || got.Kind != Warm {
		t.Errorf("choice is %v, %v", got, refusal)
	}
}

func TestStaleReportIsNotWarm(t *testing.T) {
	c := clusterOf(2, 100)
	stale := reportOf(map[string]int64{"b/train": 100})
	stale.ObservedAt = noon.Add(-71 * time.Second)
	c.SetReport("n0", stale)
	if got, _ := c.Choose(trainer("b/train"), ask(1, 8)); got.Kind != Cold {
		t.Errorf("choice is %v, want a cold one", got)
	}
}

func TestScore(t *testing.T) {
	tests := []struct {
		name   string
		warm   int64
		report func(*api.NodeCacheStatus)
		holds  []Pod
		want   int64
	}{
		{"warm", 100, nil, nil, 60 + 18 + 20},
		{"half", 50, nil, nil, 30 + 18 + 20},
		{"cold", 0, nil, nil, 18 + 20},
		{"reads as much as any", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].EgressBytesPerSecond = 1e9 }, nil, 60 + 18},
		{"reads little", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].EgressBytesPerSecond = littleEgress / 4 }, nil, 60 + 18 + 15},
		{"egress idle", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].EgressLimitBytesPerSecond = 100 }, nil, 60 + 18 + 20},
		{"egress used", 100, func(r *api.NodeCacheStatus) {
			r.Mounts[0].EgressLimitBytesPerSecond, r.Mounts[0].EgressBytesPerSecond = 100, 75
		}, nil, 60 + 18 + 5},
		{"stale", 100, func(r *api.NodeCacheStatus) { r.ObservedAt = noon.Add(-time.Hour) }, nil, 18 + 10},
		{"promised to another", 0, nil, []Pod{{Key: "x", Dataset: "b/x", Bytes: 400}}, 10 + 20},
		{"promised twice is promised once", 0, nil, []Pod{{Key: "x", Dataset: "b/x", Bytes: 400}, {Key: "y", Dataset: "b/x", Bytes: 400}}, 10 + 20},
		{"promised for the same", 100, nil, []Pod{{Key: "x", Dataset: "b/train"}}, 60 + 18 + 20},
		{"held by loaders", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].ReservedBytes = 1000 }, nil, 60 + 20},
		{"not uploaded yet", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].DirtyBytes = 400 }, nil, 60 + 10 + 20},
		{"no cache on SSD", 100, func(r *api.NodeCacheStatus) { r.Mounts[0].CapacityBytes = 0 }, nil, 60 + 20},
		{"mount gone", 100, func(r *api.NodeCacheStatus) { r.Mounts = nil }, nil, 0},
	}
	for _, test := range tests {
		c := clusterOf(1)
		r := reportOf(map[string]int64{"b/train": test.warm})
		if test.report != nil {
			test.report(&r)
		}
		c.SetReport("n0", r)
		for _, p := range test.holds {
			c.Hold(p, "n0")
		}
		if got := c.Score(trainer("b/train"), "n0", noon); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestColdDatasetsAvoidNodesThatFetchMuch(t *testing.T) {
	c := clusterOf(3)
	p := trainer("b/cold")
	choose := func() string {
		choice, _ := c.Choose(p, ask(1, 8))
		return choice.Nodes[0]
	}
	first := choose()
	reads := func(name string, egress, limit int64) {
		r := reportOf(nil)
		r.Mounts[0].EgressBytesPerSecond, r.Mounts[0].EgressLimitBytesPerSecond = egress, limit
		c.SetReport(name, r)
	}
	reads(first, 90, 100)
	if got := choose(); got == first {
		t.Errorf("%s is chosen, which uses 90 %% of its bandwidth", got)
	}
	reads(first, 70, 100)
	if got := choose(); got != first {
		t.Errorf("%s is chosen rather than %s, which uses 70 %% of its bandwidth", got, first)
	}
	// Without a limit the busiest of all is what the others are compared with.
	reads(first, 1e9, 0)
	if got := choose(); got == first {
		t.Errorf("%s is chosen, which reads the most", got)
	}
	other := "n0"
	if first == other {
		other = "n1"
	}
	reads(other, 4e9, 0)
	if got := choose(); got != first {
		t.Errorf("%s is chosen rather than %s, which reads a quarter of what the busiest does", got, first)
	}
	c.RemoveReport(other)
	if got := choose(); got == first {
		t.Errorf("%s is chosen, which reads the most now", got)
	}
	// Where all are busy nothing changes.
	for i := range 3 {
		reads(fmt.Sprintf("n%d", i), 1e9, 1e9)
	}
	c.SetNode(wellNode(other))
	if got := choose(); got != first {
		t.Errorf("%s is chosen rather than %s, and all are busy", got, first)
	}
}

func TestTheBusiestNodeIsOneThatStillReports(t *testing.T) {
	c := clusterOf(3)
	p := trainer("b/cold")
	choose := func() string {
		choice, _ := c.Choose(p, ask(1, 8))
		return choice.Nodes[0]
	}
	first := choose()
	reads := func(name string, egress int64, age time.Duration) {
		r := reportOf(nil)
		r.ObservedAt = noon.Add(-age)
		r.Mounts[0].EgressBytesPerSecond = egress
		c.SetReport(name, r)
	}
	other := "n0"
	if first == other {
		other = "n1"
	}
	reads(first, 1e9, 0)
	reads(other, 4e9, reportAge+time.Second)
	if got := choose(); got == first {
		t.Errorf("%s is chosen, which reads the most of those that report", got)
	}
	reads(other, 4e9, 0)
	if got := choose(); got != first {
		t.Errorf("%s is chosen rather than %s, which reads a quarter of what the busiest does", got, first)
	}
	reads(other, 0, 0)
	if got := choose(); got == first {
		t.Errorf("%s is chosen, which reads the most now", got)
	}
	// The busiest falls silent: time goes by and no report comes.
	reads(first, 1e9, 0)
	reads(other, 4e9, reportAge-time.Second)
	n, now := c.nodes[first], noon
	if got := c.spare(n, &n.report.Mounts[0], now); got != 0.75 {
		t.Errorf("beside the busiest %v is spare", got)
	}
	if got := c.spare(n, &n.report.Mounts[0], now.Add(2*time.Second)); got != 0 {
		t.Errorf("when the busiest has fallen silent %v is spare", got)
	}
}

func TestHoldsAreCountedOnceAndEnd(t *testing.T) {
	c := clusterOf(2, 0)
	a, b := trainer("b/train"), trainer("b/train")
	b.Key = "other"
	c.Hold(a, "n0")
	c.Hold(b, "n0")
	if got := c.Held("n0"); got != 100 {
		t.Errorf("two pods of one dataset hold %d bytes, want 100", got)
	}
	c.Hold(a, "n1")
	if got := []int64{c.Held("n0"), c.Held("n1")}; !slices.Equal(got, []int64{100, 100}) {
		t.Errorf("after one moved: %v", got)
	}
	c.Drop("uid")
	c.Drop("uid")
	c.Drop("other")
	if got := []int64{c.Held("n0"), c.Held("n1")}; !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("after both ended: %v", got)
	}
}

func TestClusterKeepsNothingOfNodesThatAreGone(t *testing.T) {
	c := clusterOf(3, 100, 100)
	c.Hold(trainer("b/train"), "n1")
	for i := range 3 {
		c.RemoveReport(fmt.Sprintf("n%d", i))
		c.RemoveNode(fmt.Sprintf("n%d", i))
	}
	c.Drop("uid")
	if len(c.nodes)+len(c.datasets)+len(c.totals)+len(c.holds) != 0 {
		t.Errorf("left: %v %v %v %v", c.nodes, c.datasets, c.totals, c.holds)
	}
}

func TestRefusalsSayWhatWouldHelp(t *testing.T) {
	many := trainer("b/train")
	many.Wants = Resources{"nvidia.com/gpu": 16}
	absent := trainer("b/train")
	absent.Wants = Resources{"nvidia.com/mig-1g.10gb": 1}
	wrongMount := trainer("b/train")
	wrongMount.Mount = "dta"
	ill := clusterOf(2)
	lost := wellNode("n0")
	lost.GPUHealthy = Condition{Status: "False", Reason: "XID79", Message: "GPU-1 has fallen off the bus", Heartbeat: noon}
	ill.SetNode(lost)
	ill.RemoveNode("n1")
	dead := clusterOf(5)
	for i := range 5 {
		n := wellNode(fmt.Sprintf("n%d", i))
		n.MountReady = Condition{Status: "False", Reason: "DaemonDead", Message: "run pailfs mount", Heartbeat: noon}
		dead.SetNode(n)
	}
	noAgent := New(Config{})
	noAgent.SetNode(Node{Name: "n0", Capacity: Resources{"nvidia.com/gpu": 8}})
	empty := clusterOf(1)
	empty.SetReport("n0", api.NodeCacheStatus{ObservedAt: noon})
	tests := []struct {
		c    *Cluster
		p    Pod
		want Refusal
	}{
		{clusterOf(2), trainer("c/train"), Refusal{UnknownData, `no mount shows dataset "c/train" on 2 nodes; mounts show b: name a dataset below one of these in the annotation, or mount that bucket`}},
		{clusterOf(2), many, Refusal{TooLarge, `the pod wants 16 nvidia.com/gpu and no node has more than 8: ask for at most 8 a pod, and for several pods with the annotation pailfs.io/gang-size`}},
		{clusterOf(2), absent, Refusal{TooLarge, `the pod wants 1 nvidia.com/mig-1g.10gb and no node has any: see that the device plugin runs, or write the resource's name as it does (kubectl describe nodes)`}},
		{noAgent, trainer("b/train"), Refusal{NoAgent, `no pailfs agent on any of 1 nodes: deploy it with kubectl apply -k deploy/kubernetes, and see its pods' logs`}},
		{empty, trainer("b/train"), Refusal{NotMounted, `nothing is mounted on 1 node: mount the bucket there, see deploy/README.md`}},
		{clusterOf(2), wrongMount, Refusal{NotMounted, `no mount is named "dta" on 2 nodes: see the names with kubectl get pailfsnodecaches, or leave the annotation pailfs.io/mount away`}},
		{dead, trainer("b/train"), Refusal{MountUnready, `dataset "b/train" is mounted on 5 nodes, and none of them may run the pod (n0: MountReady is False (DaemonDead): run pailfs mount; ` +
			`n1: MountReady is False (DaemonDead): run pailfs mount; n2: MountReady is False (DaemonDead): run pailfs mount) and 2 more: mend the mount there (pailfs status, pailfs gpu), or mount it on others; the pod goes on by itself then`}},
		{ill, trainer("b/train"), Refusal{GPUUnhealthy, `dataset "b/train" is mounted on 1 node, and none of them may run the pod (n0: GPUHealthy is False (XID79): GPU-1 has fallen off the bus): mend the GPU there (pailfs status, pailfs gpu), or mount it on others; the pod goes on by itself then`}},
	}
	for _, test := range tests {
		_, got := test.c.Choose(test.p, ask(1, 8))
		if got == nil {
			t.Errorf("not refused, want %v", test.want)
		} else if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, warm := range []int{0, 10, 10000} {
		bytes := make([]int64, warm)
		for i := range bytes {
			bytes[i] = 100
		}
		c := clusterOf(10000, bytes...)
		b.Run(fmt.Sprintf("nodes=10000/warm=%d", warm), func(b *testing.B) {
			for b.Loop() {
				if got, refusal := c.Choose(trainer("b/train"), ask(1, 8)); refusal != nil || len(got.Nodes) == 0 {
					b.Fatal(got, refusal)
				}
			}
		})
	}
}
