package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/sched"
)

// watch keeps the cluster up to date until ctx ends.
func (p *Plugin) watch(ctx context.Context) error {
	factory := p.handle.SharedInformerFactory().Core().V1()
	if _, err := factory.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { p.cluster.SetNode(nodeOf(is.(*v1.Node))) },
		UpdateFunc: func(_, is any) { p.cluster.SetNode(nodeOf(is.(*v1.Node))) },
		DeleteFunc: func(was any) {
			if node, ok := last[*v1.Node](was); ok {
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
			if pod, ok := last[*v1.Pod](was); ok {
				p.lostPod(pod)
			}
		},
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	client, err := reportClient(p.handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("watch %s: %w", api.ResourceNodeCache, err)
	}
	reflector := cache.NewReflectorWithOptions(
		cache.NewListWatchFromClient(client, api.ResourceNodeCache, metav1.NamespaceAll, fields.Everything()),
		&report{}, &reports{p: p, names: map[string]struct{}{}}, cache.ReflectorOptions{Name: api.ResourceNodeCache},
	)
	go reflector.RunWithContext(ctx)
	return nil
}

// last returns an object that is gone, as it was known last.
func last[T any](was any) (T, bool) {
	if unseen, ok := was.(cache.DeletedFinalStateUnknown); ok {
		was = unseen.Obj
	}
	object, ok := was.(T)
	return object, ok
}

// nodeOf takes from a Node what placement needs. Labels are not among it.
func nodeOf(node *v1.Node) sched.Node {
	n := sched.Node{Name: node.Name, Capacity: capacity(node)}
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

// sawPod takes what a pod says of holds and gangs. The scheduler's informer shows no
// pods that have ended.
func (p *Plugin) sawPod(pod *v1.Pod) {
	parsed, ok, err := parse(pod)
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
		if parsed, ok, err := parse(pod); ok && err == nil && parsed.Gang == gang && pod.Spec.NodeName == "" {
			wake[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	p.handle.Activate(klog.Background(), wake)
}

// lostPod forgets a pod that has ended.
func (p *Plugin) lostPod(pod *v1.Pod) {
	p.placed(pod)
	p.cluster.Drop(string(pod.UID))
	if parsed, ok, err := parse(pod); ok && err == nil && parsed.Gang != "" {
		p.gangs.Lose(parsed)
		p.rouse(false)
	}
}

// report is a PailfsNodeCache.
type report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            api.NodeCacheStatus `json:"status"`
}

// reportList is a list of them.
type reportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []report `json:"items"`
}

// DeepCopyObject is runtime.Object's. What the status points to is never changed.
func (r *report) DeepCopyObject() runtime.Object {
	c := &report{TypeMeta: r.TypeMeta, Status: r.Status}
	r.DeepCopyInto(&c.ObjectMeta)
	return c
}

// DeepCopyObject is runtime.Object's.
func (l *reportList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	return &c
}

// reportClient returns a client of PailfsNodeCaches alone.
func reportClient(kube *rest.Config) (*rest.RESTClient, error) {
	group := schema.GroupVersion{Group: api.Group, Version: api.Version}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind(api.KindNodeCache), &report{})
	scheme.AddKnownTypeWithName(group.WithKind(api.KindNodeCache+"List"), &reportList{})
	metav1.AddToGroupVersion(scheme, group)
	config := rest.CopyConfig(kube)
	config.GroupVersion, config.APIPath = &group, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// reports is where the watch puts PailfsNodeCaches: straight into the cluster, so that
// ten thousand of them are in memory once. The reflector calls it from one goroutine.
type reports struct {
	p     *Plugin
	names map[string]struct{}
}

// Add is cache.ReflectorStore's.
func (s *reports) Add(object any) error {
	r := object.(*report)
	s.names[r.Name] = struct{}{}
	if s.p.cluster.SetReport(r.Name, r.Status) {
		s.p.rouse(true)
	}
	return nil
}

// Update is cache.ReflectorStore's.
func (s *reports) Update(object any) error { return s.Add(object) }

// Delete is cache.ReflectorStore's.
func (s *reports) Delete(object any) error {
	name := object.(*report).Name
	delete(s.names, name)
	s.p.cluster.RemoveReport(name)
	return nil
}

// Replace is cache.ReflectorStore's.
func (s *reports) Replace(objects []any, _ string) error {
	gone := s.names
	s.names = make(map[string]struct{}, len(objects))
	for _, object := range objects {
		delete(gone, object.(*report).Name)
		if err := s.Add(object); err != nil {
			return err
		}
	}
	for name := range gone {
		s.p.cluster.RemoveReport(name)
	}
	return nil
}

// Resync is cache.ReflectorStore's.
func (*reports) Resync() error { return nil }

var _ cache.ReflectorStore = (*reports)(nil)
