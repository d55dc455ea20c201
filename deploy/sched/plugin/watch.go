package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pailfs/pailfs/deploy/sched"
	"github.com/pailfs/pailfs/deploy/sched/kube"
)

// watch keeps the cluster up to date until ctx ends.
func (p *Plugin) watch(ctx context.Context) error {
	factory := p.handle.SharedInformerFactory().Core().V1()
	if _, err := factory.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { p.cluster.SetNode(kube.Node(is.(*v1.Node))) },
		UpdateFunc: func(_, is any) { p.cluster.SetNode(kube.Node(is.(*v1.Node))) },
		DeleteFunc: func(was any) {
			if node, ok := kube.Last[*v1.Node](was); ok {
				p.cluster.RemoveNode(node.Name)
			}
		},
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	if _, err := factory.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { p.sawPod(is.(*v1.Pod)) },
		UpdateFunc: func(_, is any) { p.sawPod(is.(*v1.Pod)) },
		DeleteFunc: func(was any) {
			if pod, ok := kube.Last[*v1.Pod](was); ok {
				p.lostPod(pod)
			}
		},
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return kube.WatchReports(ctx, p.handle.KubeConfig(), p.cluster, func() { p.rouse(true) })
}

// sawPod takes what a pod says of holds and gangs. The scheduler's informer shows no
// pods that have ended.
func (p *Plugin) sawPod(pod *v1.Pod) {
	parsed, ok, err := kube.Pod(pod)
	if !ok || err != nil {
		return
	}
	if pod.Spec.NodeName != "" {
		p.placed(pod)
		p.cluster.Hold(parsed, pod.Spec.NodeName)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		p.gangs.Lose(parsed)
	case pod.Spec.NodeName != "":
		p.gangs.See(parsed, sched.Placed)
	case p.gangs.See(parsed, sched.Waiting):
		p.gather(parsed.Gang)
	}
}

// gather puts the pods of a gang that has become complete back into the queue.
func (p *Plugin) gather(gang string) {
	pods, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return // the lister reads from memory
	}
	wake := map[string]*v1.Pod{}
	for _, pod := range pods {
		if parsed, ok, err := kube.Pod(pod); ok && err == nil && parsed.Gang == gang && pod.Spec.NodeName == "" {
			wake[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	p.handle.Activate(klog.Background(), wake)
}

// lostPod forgets a pod that has ended.
func (p *Plugin) lostPod(pod *v1.Pod) {
	p.placed(pod)
	p.cluster.Drop(string(pod.UID))
	if parsed, ok, err := kube.Pod(pod); ok && err == nil && parsed.Gang != "" {
		p.gangs.Lose(parsed)
		p.rouse(false)
	}
}
