package prefetch

import (
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
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
