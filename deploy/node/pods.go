package node

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// watches are what the agent is told of: its Node and the pods on it.
type watches struct {
	factories []informers.SharedInformerFactory
	pods      corelisters.PodLister
}

// watch begins to listen. The informers go on through restarts of the API server by
// themselves. Of pods only what names a dataset is kept.
func watch(ctx context.Context, client kubernetes.Interface, cfg *Config, node func(*v1.Node), pods func()) (*watches, error) {
	only := func(field string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, cfg.Node).String()
		}))
	}
	own, here := only("metadata.name"), only("spec.nodeName")
	w := &watches{factories: []informers.SharedInformerFactory{own, here}, pods: here.Core().V1().Pods().Lister()}
	changed := func(o any) {
		if n, ok := o.(*v1.Node); ok && n.Name == cfg.Node {
			node(n)
		}
	}
	if _, err := own.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
	}); err != nil {
		return nil, fmt.Errorf("watch node %q: %w", cfg.Node, err)
	}
	informer := here.Core().V1().Pods().Informer()
	if err := informer.SetTransform(slim); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { pods() }, UpdateFunc: func(any, any) { pods() }, DeleteFunc: func(any) { pods() },
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	for _, f := range w.factories {
		f.Start(ctx.Done())
	}
	return w, nil
}

// close waits for the watches, whose context has ended.
func (w *watches) close() {
	for _, f := range w.factories {
		f.Shutdown()
	}
}

// slim keeps of a pod what the agent needs.
func slim(o any) (any, error) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return o, nil
	}
	s := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion}}
	if name := datasetOf(p); name != "" {
		s.Annotations = map[string]string{api.AnnotationDataset: name}
	}
	s.Spec.NodeName, s.Status.Phase = p.Spec.NodeName, p.Status.Phase
	return s, nil
}

// datasetOf returns the dataset that a pod names, "" if it names none that can be.
func datasetOf(p *v1.Pod) string {
	name := p.Annotations[api.AnnotationDataset]
	if name == "" {
		name = p.Labels[api.AnnotationDataset]
	}
	n, err := api.NormalizeDataset(name)
	if err != nil {
		return ""
	}
	return n
}

// datasets returns the datasets that pods on the node name.
func (w *watches) datasets(node string) map[string]bool {
	names := map[string]bool{}
	pods, err := w.pods.List(labels.Everything())
	if err != nil {
		return names // a list of what is in memory does not fail
	}
	for _, p := range pods {
		if n := datasetOf(p); n != "" && p.Spec.NodeName == node && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			names[n] = true
		}
	}
	return names
}
