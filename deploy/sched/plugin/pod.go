package plugin

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/pailfs/pailfs/deploy/sched"
)

// parse reads a pod. ok is false if it is to be left alone.
func parse(pod *v1.Pod) (p sched.Pod, ok bool, err error) {
	m := sched.Meta{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Annotations: pod.Annotations, Labels: pod.Labels}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		m.Controller = string(owner.UID)
	}
	return sched.ParsePod(m, wants(pod), len(pod.Spec.ResourceClaims) > 0)
}

// wants returns a pod's requests.
func wants(pod *v1.Pod) sched.Resources {
	r := sched.Resources{string(v1.ResourcePods): 1}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if name == v1.ResourceCPU {
			r[string(name)] = quantity.MilliValue()
		} else {
			r[string(name)] = quantity.Value()
		}
	}
	return r
}

// capacity returns what of a node's resources are devices: the rest of a pod's requests
// the scheduler's own plugins explain.
func capacity(node *v1.Node) sched.Resources {
	r := sched.Resources{}
	for name, quantity := range node.Status.Allocatable {
		if name == v1.ResourceCPU {
			r[string(name)] = quantity.MilliValue()
		} else {
			r[string(name)] = quantity.Value()
		}
	}
	return r
}

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
