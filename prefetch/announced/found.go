package announced

import (
	"context"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// found collects the objects that a path means. Those beyond the first are charged to a
// user: one name can mean a bucket.
type found struct {
	ledger  *budget.Ledger
	payer   budget.User
	objects []oss.Object
	// extra is what was charged for them.
	extra int64
}

// add takes one more, or fails with a [budget.Exceeded].
func (f *found) add(o oss.Object) error {
	if len(f.objects) > 0 {
		cost := session.ObjectCost + int64(len(o.Key))
		if err := f.ledger.Take(f.payer, budget.Names, cost); err != nil {
			return err
		}
		f.extra += cost
	}
	f.objects = append(f.objects, o)
	return nil
}

// objectsOf finds the files that a path means to who, itself or all below it, and charges
// them to a user, also where it fails.
func (p *Sessions) objectsOf(ctx context.Context, who session.Who, payer budget.User, name string) (*found, error) {
	f := &found{ledger: p.cfg.Ledger, payer: payer}
	err := rights.Walk(ctx, p.cfg.Rights, who, name, func(_ string, x rights.Found) error {
		if x.Err != nil || x.Staged {
			return x.Err
		}
		return f.add(x.Object)
	})
	return f, err
}
