package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// nodeWriter keeps a Node as it should be. It is used by one goroutine, but for seen.
type nodeWriter struct {
	nodes corev1.NodeInterface
	name  string
	// relabelled is when labels were changed last.
	relabelled time.Time
	mu         struct {
		sync.Mutex
		// node is the Node as it was heard of last, nil if it must be asked for.
		node *v1.Node
	}
}

// seen takes what a watch says.
func (w *nodeWriter) seen(n *v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.node = n
}

// current returns the Node, asking for it if it is not known.
func (w *nodeWriter) current(ctx context.Context) (*v1.Node, error) {
	w.mu.Lock()
	n := w.mu.node
	w.mu.Unlock()
	if n != nil {
		return n, nil
	}
	n, err := w.nodes.Get(ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node %q: %w", w.name, err)
	}
	w.seen(n)
	return n, nil
}

// write writes what differs between the Node and what it should be. A bad news goes into
// taints first, a good one into conditions, so that at no time is a node offered
// whose condition is not True.
func (w *nodeWriter) write(ctx context.Context, n *v1.Node, d desired, now time.Time) error {
	steps := []func(context.Context, *v1.Node, desired, time.Time) (*v1.Node, error){w.writeSpec, w.writeStatus}
	if after, _ := taintsOf(n, d.taints, now); len(after) < len(n.Spec.Taints) {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		after, err := step(ctx, n, d, now)
		if err != nil {
			w.seen(nil) // somebody else wrote it, or what it is now is not known
			return fmt.Errorf("write node %q: %w", w.name, err)
		}
		n = after
	}
	w.seen(n)
	return nil
}

// writeSpec writes taints and labels.
func (w *nodeWriter) writeSpec(ctx context.Context, n *v1.Node, d desired, now time.Time) (*v1.Node, error) {
	taints, changed := taintsOf(n, d.taints, now)
	labels := labelsOf(n, d.labels)
	if now.Sub(w.relabelled) < labelPause {
		labels = nil
	}
	if !changed && len(labels) == 0 {
		return n, nil
	}
	after, err := w.nodes.Patch(ctx, w.name, types.MergePatchType, nodePatch(n, labels, taints, changed), metav1.PatchOptions{})
	if err == nil && len(labels) > 0 {
		w.relabelled = now
	}
	return after, err
}

// writeStatus writes conditions.
func (w *nodeWriter) writeStatus(ctx context.Context, n *v1.Node, d desired, now time.Time) (*v1.Node, error) {
	conditions := conditionsOf(n, d.conditions, now)
	if len(conditions) == 0 {
		return n, nil
	}
	return w.nodes.PatchStatus(ctx, w.name, statusPatch(conditions))
}
