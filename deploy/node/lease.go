package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// leasePeriod is how often a lease is renewed: two renewals may fail before it is
// stale.
const leasePeriod = 12 * time.Second

// leaseWriter renews the Lease that says that the agent lives. It is used by one
// goroutine.
type leaseWriter struct {
	leases coordinationv1.LeaseInterface
	node   string
	last   *coordination.Lease
	next   time.Time
}

// renew renews the lease if that is due.
func (w *leaseWriter) renew(ctx context.Context, node *v1.Node, now time.Time) error {
	if now.Before(w.next) {
		return nil
	}
	lease, there := w.last.DeepCopy(), true
	if lease == nil {
		got, err := w.leases.Get(ctx, api.LeaseName(w.node), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			there = false
			lease = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: api.LeaseName(w.node)}}
		case err != nil:
			return fmt.Errorf("get lease %q: %w", api.LeaseName(w.node), err)
		default:
			lease = got.DeepCopy()
		}
	}
	seconds, at := int32(api.LeaseStaleSeconds), metav1.NewMicroTime(now)
	lease.Labels = map[string]string{api.LabelAgent: "node"}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	lease.Spec = coordination.LeaseSpec{HolderIdentity: &w.node, LeaseDurationSeconds: &seconds, RenewTime: &at}
	var err error
	if there {
		lease, err = w.leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else {
		lease, err = w.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		w.last = nil
		return fmt.Errorf("renew lease %q: %w", api.LeaseName(w.node), err)
	}
	w.last, w.next = lease, now.Add(time.Duration(float64(leasePeriod)*(0.9+0.2*rand.Float64())))
	return nil
}
