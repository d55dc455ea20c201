package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// NodeCaches names the custom resource to Kubernetes' clients.
var NodeCaches = schema.GroupVersionResource{Group: api.Group, Version: api.Version, Resource: api.ResourceNodeCache}

const (
	// cachePeriod is how old a PailfsNodeCache becomes, give or take cacheJitter of it, so
	// that ten thousand agents do not write at the same time.
	cachePeriod = 30 * time.Second
	cacheJitter = 0.15
	// cachePause is the least time between two writes.
	cachePause = 5 * time.Second
	// notable is the share by which a figure must have changed to be written before
	// its time.
	notable = 0.05
)

// cacheWriter keeps a node's PailfsNodeCache. It is used by one goroutine.
type cacheWriter struct {
	caches dynamic.ResourceInterface
	name   string
	last   *api.NodeCacheStatus
	at     time.Time
	period time.Duration
}

// due reports whether s is worth writing now.
func (w *cacheWriter) due(s *api.NodeCacheStatus, now time.Time) bool {
	age := now.Sub(w.at)
	return w.last == nil || age >= w.period || age >= cachePause && differs(w.last, s)
}

// write writes s for the given node. The first write makes the object.
func (w *cacheWriter) write(ctx context.Context, node *v1.Node, s *api.NodeCacheStatus, now time.Time) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return fmt.Errorf("encode %s: %w", api.KindNodeCache, err)
	}
	for _, field := range []string{"mounts", "datasets", "gpus"} {
		if _, ok := content[field]; !ok {
			content[field] = nil // a merge keeps what it does not name
		}
	}
	owner := map[string]any{"apiVersion": "v1", "kind": "Node", "name": node.Name, "uid": string(node.UID)}
	meta := map[string]any{"name": w.name, "ownerReferences": []any{owner}}
	object := map[string]any{"apiVersion": api.APIVersion, "kind": api.KindNodeCache, "metadata": meta, "status": content}
	_, err = w.caches.Patch(ctx, w.name, types.MergePatchType, encode(object), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		for field, value := range content {
			if value == nil {
				delete(content, field)
			}
		}
		_, err = w.caches.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write %s %q: %w", api.KindNodeCache, w.name, err)
	}
	w.last, w.at = s, now
	w.period = time.Duration(float64(cachePeriod) * (1 - cacheJitter + 2*cacheJitter*rand.Float64()))
	return nil
}

// remembered returns the datasets that the object named when the agent started, so that
// what is warm stays known though no pod asks for it any more.
func (w *cacheWriter) remembered(ctx context.Context) ([]string, error) {
	object, err := w.caches.Get(ctx, w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %q: %w", api.KindNodeCache, w.name, err)
	}
	s, err := api.DecodeNodeCache(object.Object)
	if err != nil {
		return nil, nil //nolint:nilerror // whoever wrote it, it is about to be replaced
	}
	var names []string
	for _, d := range s.Datasets {
		names = append(names, d.Name)
	}
	return names, nil
}

// differs reports whether b says something notable that a does not. What a mount reads from
// the object store changes all the time and is told when something else is, or every period.
func differs(a, b *api.NodeCacheStatus) bool {
	if len(a.Mounts) != len(b.Mounts) || len(a.Datasets) != len(b.Datasets) || (a.GPUs == nil) != (b.GPUs == nil) {
		return true
	}
	for i, m := range b.Mounts {
		was := a.Mounts[i]
		if m.Name != was.Name || m.Source != was.Source || m.Ready != was.Ready || m.Reason != was.Reason || moved(was.UsedBytes, m.UsedBytes, m.CapacityBytes) ||
			moved(was.ReservedBytes, m.ReservedBytes, m.CapacityBytes) || moved(was.DirtyBytes, m.DirtyBytes, was.DirtyBytes) || was.CapacityBytes != m.CapacityBytes ||
			was.EgressLimitBytesPerSecond != m.EgressLimitBytesPerSecond {
			return true
		}
	}
	for i, d := range b.Datasets {
		if was := a.Datasets[i]; d.Name != was.Name || d.Mount != was.Mount || d.BytesTotal != was.BytesTotal || moved(was.BytesWarm, d.BytesWarm, max(d.BytesTotal, was.BytesWarm)) {
			return true
		}
	}
	if g := b.GPUs; g != nil {
		return g.State != a.GPUs.State || g.Healthy != a.GPUs.Healthy || g.Expected != a.GPUs.Expected || !slices.Equal(g.Reasons, a.GPUs.Reasons)
	}
	return false
}

// moved reports whether a figure changed by a notable share of the whole.
func moved(from, to, whole int64) bool {
	change := max(from, to) - min(from, to)
	return change > 0 && float64(change) >= notable*float64(whole)
}

// statusOf returns what a PailfsNodeCache says of an observation.
func statusOf(o *observation) *api.NodeCacheStatus {
	s := &api.NodeCacheStatus{ObservedAt: o.at.UTC().Truncate(time.Second), Datasets: o.datasets}
	for _, m := range o.mounts {
		r := api.MountStatus{Name: m.Name, Path: m.Path, Ready: m.ready(), Reason: m.reason}
		if r.Ready && m.degraded != "" {
			r.Reason = api.ReasonDegraded
		}
		if st := m.status; st != nil {
			r.Source, r.ReadOnly, r.ReservedBytes = st.Source, st.Writing == nil, st.Loader.Charged
			r.EgressBytesPerSecond, r.EgressLimitBytesPerSecond = m.egress, st.Store.DownloadLimit
			if st.Cache.SSD != nil {
				r.CapacityBytes, r.UsedBytes = st.Cache.SSD.Limit, st.Cache.SSD.Used
			}
			if st.Writing != nil {
				r.DirtyBytes, r.DirtyFiles = st.Writing.DirtyBytes, st.Writing.DirtyFiles
			}
		}
		s.Mounts = append(s.Mounts, r)
	}
	if g := o.gpus; g != nil {
		s.GPUs = &api.GPUStatus{State: g.verdict, Expected: g.expected, Healthy: g.healthy, Reasons: g.codes}
	}
	return s
}
