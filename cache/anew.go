package cache

import (
	"context"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// anew is what a read does whose bytes were gone, or did not come, each time it looked:
// it asks the object store itself, once, and takes what that answers. Nothing that
// others write, drop or abandon can come between, so the read gets on, or fails as the
// store does.
//
// What is fetched is checked as all else is, and nobody else is given it: its blocks may
// be on their way for others at the same time.

// readAnew fills the beginning of p with the bytes at off and returns how many those are.
func readAnew(ctx context.Context, o *object, p []byte, off int64) (n int64, err error) {
	c := o.cache
	if !c.beginFlight() {
		return 0, errClosed
	}
	defer c.mu.flights.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	f := flightAnew(o, off, int64(len(p)))
	defer f.extent.release()

	said, err := f.fetch(ctx)
	if err == nil {
		err = checkAnew(f, said)
	}
	if c.closed() != nil {
		return 0, errClosed
	}
	if err != nil {
		return 0, err
	}
	return int64(copy(p, f.extent.slice(off, int64(len(p))))), nil
}

// flightAnew returns a flight of which the object knows nothing. It brings the n bytes at
// off, as far as the segment has them; all of an object that is checked as a whole.
func flightAnew(o *object, off, n int64) *flight {
	var s content.Span
	for s = range o.geometry.Spans(off, n) {
		break
	}
	if o.small() {
		s = o.geometry.Whole(0)
	}
	o.acquire()
	e := &extent{object: o, span: s}
	e.refs.Store(1)
	return &flight{extent: e, purpose: forDemand, length: o.geometry.Length(s), withhold: true}
}

// checkAnew compares what came with all that is known of the object.
func checkAnew(f *flight, said oss.RangeResult) error {
	o := f.extent.object
	o.mu.Lock()
	err := o.sum(f.extent.span, f.sums, said)
	var waste leftovers
	if err != nil {
		waste = o.forget()
	}
	o.mu.Unlock()
	if err != nil {
		o.cache.discard(o, waste, err)
	}
	return err
}
