package cache

import "context"

// View is a window on cached bytes. They stay as they are until Release.
type View struct {
	slices  [][]byte
	extents []*extent

	// A view of what was not in memory has its own buffer.
	memory *memoryTier
	buf    buffer

	// one avoids allocations for the most common view.
	one       [1][]byte
	oneExtent [1]*extent
}

// Slices returns the bytes, in order. They must not be written.
func (v *View) Slices() [][]byte { return v.slices }

// Len returns the number of bytes in all slices.
func (v *View) Len() int {
	n := 0
	for _, s := range v.slices {
		n += len(s)
	}
	return n
}

// Release gives the bytes back. Nothing of Slices may be used afterwards. Further
// calls do nothing.
func (v *View) Release() {
	for _, e := range v.extents {
		e.release()
	}
	if v.buf.bytes != nil {
		v.memory.freeCopy(v.buf)
	}
	*v = View{}
}

// add appends what is at p, whose reference it takes.
func (v *View) add(p place) {
	if v.slices == nil {
		v.slices, v.extents = v.one[:0], v.oneExtent[:0]
	}
	v.slices = append(v.slices, p.bytes)
	v.extents = append(v.extents, p.extent)
}

// view returns the n bytes at off.
//
// While it waits, for bytes or for memory, it holds nothing but what it waits
// for. Readers who kept one extent while they waited for the next could fill the
// budget among them, and wait for ever.
func (o *object) view(ctx context.Context, off, n int64) (*View, error) {
	o.touch()
	o.cache.ssd.load(o)
	for attempt := range maxAttempts {
		v, at, err := o.gather(off, n, attempt == 0)
		switch {
		case err != nil:
			return nil, err
		case v != nil:
			return v, nil
		case at.flight == nil:
			return o.copied(ctx, off, n)
		}
		err = o.wait(ctx, at)
		if err == nil && at.n == n {
			// It was all there is to wait for: no need to look again.
			v := new(View)
			at.arrived()
			v.add(at)
			o.took(at)
			return v, nil
		}
		at.extent.release()
		if err != nil && !o.again(ctx, at, err) {
			return nil, err
		}
	}
	return o.copied(ctx, off, n)
}

// gather returns a view if all bytes are in memory, having started what is not.
// Else it returns the first place where they are not, with a reference if that is
// a flight.
func (o *object) gather(off, n int64, observe bool) (*View, place, error) {
	var few [4]place
	places, missing, complete := few[:0], place{}, true
	o.mu.Lock()
	flights := o.plan(off, n, observe)
	for pos := off; pos < off+n; {
		p := o.locate(pos, off+n-pos)
		if p.extent == nil || p.flight != nil && !p.flight.reached(p.need) {
			missing, complete = p, false
			break
		}
		p.arrived()
		places = append(places, p)
		pos += p.n
	}
	o.mu.Unlock()
	o.cache.launch(flights)

	if err := o.cache.closed(); err != nil || !complete {
		for _, p := range places {
			p.extent.release()
		}
		if err != nil && missing.extent != nil {
			missing.extent.release()
		}
		return nil, missing, err
	}
	v := new(View)
	for _, p := range places {
		v.add(p)
		o.took(p)
	}
	return v, place{}, nil
}

// copied returns a view of the n bytes at off in a buffer of its own.
func (o *object) copied(ctx context.Context, off, n int64) (*View, error) {
	m := o.cache.memory
	b, err := m.allocateCopy(ctx, n)
	if err != nil {
		return nil, err
	}
	v := &View{memory: m, buf: b}
	v.slices = append(v.one[:0], b.bytes[:n])
	if err := o.readAt(ctx, v.slices[0], off, false); err != nil {
		v.Release()
		return nil, err
	}
	return v, nil
}
