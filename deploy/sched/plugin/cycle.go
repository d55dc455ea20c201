package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/pailfs/pailfs/deploy/sched"
	"github.com/pailfs/pailfs/deploy/sched/kube"
)

// cycle is what one scheduling cycle knows of its pod.
type cycle struct {
	pod sched.Pod
	now time.Time
}

// cycleKey is where it lies.
const cycleKey fwk.StateKey = Name

// Clone returns the same: it does not change within a cycle.
func (c *cycle) Clone() fwk.StateData { return c }

// of returns the cycle of a pod, nil if it is left alone.
func of(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// rejected returns a refusal as a status. Evicting other pods mends none of them.
func rejected(r *sched.Refusal) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.Message)
}

// PreEnqueue holds back pods whose gang is not there yet. Annotations that cannot be
// read are PreFilter's, whose refusals become events.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	parsed, ok, err := kube.Pod(pod)
	if !ok || err != nil {
		return nil
	}
	if refusal := p.gangs.Exists(parsed); refusal != nil {
		return rejected(refusal)
	}
	return nil
}

// PreFilter names the nodes to look at.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	parsed, ok, err := kube.Pod(pod)
	if !ok {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if err != nil {
		return nil, rejected(&sched.Refusal{Reason: sched.BadAnnotation, Message: err.Error()})
	}
	now := time.Now()
	state.Write(cycleKey, &cycle{pod: parsed, now: now})
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	logger, nodes := klog.FromContext(ctx), p.handle.SnapshotSharedLister().NodeInfos()
	was := p.attempt(pod)
	ask := sched.Ask{Now: now, Need: p.gangs.Need(parsed), Since: was.since, Attempts: was.count, Room: func(name string) int {
		info, err := nodes.Get(name)
		if err != nil {
			return 0 // not in this cycle's snapshot
		}
		return room(logger, pod, parsed.Wants, affinity, info)
	}}
	choice, refusal := p.cluster.Choose(parsed, ask)
	if refusal == nil {
		refusal = p.gangs.Admit(parsed, ask)
	}
	if refusal != nil {
		p.abort(parsed, refusal.Message)
		return nil, rejected(refusal)
	}
	logger.V(3).Info("Nodes chosen", "pod", klog.KObj(pod), "dataset", parsed.Dataset, "kind", choice.Kind, "nodes", len(choice.Nodes))
	if choice.Nodes == nil {
		return nil, nil
	}
	if choice.Kind != sched.Any {
		p.restricted(pod, now)
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(choice.Nodes...)}, nil
}

// PreFilterExtensions returns nil: pods that come and go on a node change nothing here.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a pod off nodes that cannot serve it.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := of(state)
	if c == nil {
		return nil
	}
	if refusal := p.cluster.Check(c.pod, info.Node().Name, c.now); refusal != nil {
		return rejected(refusal)
	}
	return nil
}

// PostFilter gives back what is kept for the rest of a gang of which one pod finds no
// node. It makes no room itself.
func (p *Plugin) PostFilter(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if c := of(state); c != nil {
		p.abort(c.pod, "a pod of gang "+c.pod.Gang+" finds no node: its pods are tried again together")
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// Score says how good a node is.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := of(state)
	if c == nil {
		return 0, nil
	}
	return p.cluster.Score(c.pod, info.Node().Name, c.now), nil
}

// ScoreExtensions returns nil: scores are already 0 to 100.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve promises the node's cache to the pod.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if c := of(state); c != nil {
		p.cluster.Hold(c.pod, node)
		p.placed(pod)
	}
	return nil
}

// Unreserve takes the promise back, and with it what is kept for the rest of the gang.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	c := of(state)
	if c == nil {
		return
	}
	p.cluster.Drop(string(pod.UID))
	p.abort(c.pod, "gang "+c.pod.Gang+" could not be placed whole: its pods are tried again together")
}

// Permit lets the pods of a gang go to their nodes when all have one.
func (p *Plugin) Permit(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	c := of(state)
	if c == nil || c.pod.Gang == "" {
		return nil, 0
	}
	if !p.gangs.Reserve(c.pod) {
		return fwk.NewStatus(fwk.Wait, "waits for the rest of gang "+c.pod.Gang), p.gangs.Limit()
	}
	p.siblings(c.pod.Gang, func(w fwk.WaitingPod) { w.Allow(Name) })
	p.rouse(false)
	return nil, 0
}

// abort gives back the nodes that are kept for a pod's gang.
func (p *Plugin) abort(pod sched.Pod, why string) {
	if pod.Gang == "" {
		return
	}
	if others := p.gangs.Abort(pod); len(others) > 0 {
		p.siblings(pod.Gang, func(w fwk.WaitingPod) { w.Reject(Name, why) })
	}
	p.rouse(false)
}

// siblings calls do for the pods of a gang that wait for the rest of it.
func (p *Plugin) siblings(gang string, do func(fwk.WaitingPod)) {
	var pods []fwk.WaitingPod
	p.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
		if parsed, ok, err := kube.Pod(w.GetPod()); ok && err == nil && parsed.Gang == gang {
			pods = append(pods, w)
		}
	})
	for _, w := range pods {
		do(w)
	}
}

// SignPod lets pods that are left alone be placed in batches, and no others.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok, _ := kube.Pod(pod); ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "nodes are chosen for each pod that reads a dataset")
	}
	return nil, nil
}
