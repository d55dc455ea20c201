package plugin

import (
	"context"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/pailfs/pailfs/deploy/sched/kube"
)

// EventsToRegister says which events may let in what this plugin refused. Of events that
// the scheduler does not know, wake hears.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	node := fwk.Add | fwk.UpdateNodeCondition | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint | fwk.UpdateNodeLabel
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: node}, QueueingHintFn: p.nodeChanged},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.podEnded},
	}, nil
}

// nodeChanged tries a pod again when a mount or a GPU recovered, or a node came or can
// take more. Heartbeats are no reason.
func (p *Plugin) nodeChanged(_ klog.Logger, pod *v1.Pod, was, is any) (fwk.QueueingHint, error) {
	node, ok := is.(*v1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	// This may come before the informer's own call.
	better := p.cluster.SetNode(kube.Node(node))
	old, ok := was.(*v1.Node)
	if !ok || better || recovered(old, node) || !maps.Equal(old.Labels, node.Labels) || old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!reflect.DeepEqual(old.Spec.Taints, node.Spec.Taints) || !reflect.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// recovered reports whether a condition of the node agent has become better.
func recovered(was, is *v1.Node) bool {
	a, b := kube.Node(was), kube.Node(is)
	return a.MountReady.Status != "True" && b.MountReady.Status == "True" ||
		a.GPUHealthy.Status != b.GPUHealthy.Status && b.GPUHealthy.Status != "False"
}

// podEnded tries a pod again when another has left its node.
func (*Plugin) podEnded(_ klog.Logger, _ *v1.Pod, was, _ any) (fwk.QueueingHint, error) {
	if ended, ok := was.(*v1.Pod); ok && ended.Spec.NodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
