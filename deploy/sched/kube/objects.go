package kube

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/sched"
)

// Pod reads a pod. ok is false if it is to be left alone; an error is for its owner.
func Pod(pod *v1.Pod) (p sched.Pod, ok bool, err error) {
	m := sched.Meta{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Annotations: pod.Annotations, Labels: pod.Labels}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		m.Controller = string(owner.UID)
	}
	wants := resources(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	wants[string(v1.ResourcePods)] = 1
	return sched.ParsePod(m, wants, len(pod.Spec.ResourceClaims) > 0)
}

// Node takes from a Node what placement needs. Labels are not among it.
func Node(node *v1.Node) sched.Node {
	n := sched.Node{Name: node.Name, Capacity: resources(node.Status.Allocatable)}
	for _, c := range node.Status.Conditions {
		is := sched.Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Heartbeat: c.LastHeartbeatTime.Time}
		switch c.Type {
		case api.ConditionMountReady:
			n.MountReady = is
		case api.ConditionGPUHealthy:
			n.GPUHealthy = is
		}
	}
	return n
}

// resources returns amounts as sched counts them.
func resources(list v1.ResourceList) sched.Resources {
	r := make(sched.Resources, len(list))
	for name, quantity := range list {
		if name == v1.ResourceCPU {
			r[string(name)] = quantity.MilliValue()
		} else {
			r[string(name)] = quantity.Value()
		}
	}
	return r
}

// Last returns an object that is gone, as an informer knew it last.
func Last[T any](was any) (T, bool) {
	if unseen, ok := was.(cache.DeletedFinalStateUnknown); ok {
		was = unseen.Obj
	}
	object, ok := was.(T)
	return object, ok
}
