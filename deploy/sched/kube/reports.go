package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/sched"
)

// WatchReports keeps the PailfsNodeCaches of a cluster up to date until ctx ends. better
// is called when one changed in a way that may let a waiting pod in. Where the definition of
// the resource is missing it is looked for again and again.
func WatchReports(ctx context.Context, config *rest.Config, cluster *sched.Cluster, better func()) error {
	client, err := reportClient(config)
	if err != nil {
		return fmt.Errorf("watch %s: %w", api.ResourceNodeCache, err)
	}
	reflector := cache.NewReflectorWithOptions(
		cache.NewListWatchFromClient(client, api.ResourceNodeCache, metav1.NamespaceAll, fields.Everything()),
		&report{}, &reports{cluster: cluster, better: better, names: map[string]struct{}{}}, cache.ReflectorOptions{Name: api.ResourceNodeCache},
	)
	go reflector.RunWithContext(ctx)
	return nil
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
	cluster *sched.Cluster
	better  func()
	names   map[string]struct{}
}

// Add is cache.ReflectorStore's.
func (s *reports) Add(object any) error {
	r := object.(*report)
	s.names[r.Name] = struct{}{}
	if s.cluster.SetReport(r.Name, r.Status) {
		s.better()
	}
	return nil
}

// Update is cache.ReflectorStore's.
func (s *reports) Update(object any) error { return s.Add(object) }

// Delete is cache.ReflectorStore's.
func (s *reports) Delete(object any) error {
	name := object.(*report).Name
	delete(s.names, name)
	s.cluster.RemoveReport(name)
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
		s.cluster.RemoveReport(name)
	}
	return nil
}

// Resync is cache.ReflectorStore's.
func (*reports) Resync() error { return nil }

var _ cache.ReflectorStore = (*reports)(nil)
