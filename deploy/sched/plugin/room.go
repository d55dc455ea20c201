package plugin

import (
	v1 "k8s.io/api/core/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/pailfs/pailfs/deploy/sched"
)

// room returns how many pods like pod a node takes at this moment.
func room(logger klog.Logger, pod *v1.Pod, wants sched.Resources, affinity nodeaffinity.RequiredNodeAffinity, info fwk.NodeInfo) int {
	node := info.Node()
	if node == nil || node.Spec.Unschedulable {
		return 0
	}
	_, tainted := corehelpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}, true)
	if tainted {
		return 0
	}
	if matches, err := affinity.Match(node); err != nil || !matches {
		return 0
	}
	free := make(sched.Resources, len(wants))
	has, used := info.GetAllocatable(), info.GetRequested()
	for name := range wants {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU:
			free[name] = has.GetMilliCPU() - used.GetMilliCPU()
		case v1.ResourceMemory:
			free[name] = has.GetMemory() - used.GetMemory()
		case v1.ResourceEphemeralStorage:
			free[name] = has.GetEphemeralStorage() - used.GetEphemeralStorage()
		case v1.ResourcePods:
			free[name] = int64(has.GetAllowedPodNumber() - len(info.GetPods()))
		default:
			free[name] = has.GetScalarResources()[v1.ResourceName(name)] - used.GetScalarResources()[v1.ResourceName(name)]
		}
	}
	return wants.Times(free)
}
