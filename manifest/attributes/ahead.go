package attributes

import (
	"github.com/pailfs/pailfs/manifest"
)

const (
	// parallel is how many requests ahead there are at once. How many of them are in flight
	// is for the limiter to say, which knows how the store bears them.
	parallel = 256
	// leastWindow and mostWindow are how many names are asked ahead.
	leastWindow, mostWindow = 16, 512
	// mostRuns is how many directories are watched.
	mostRuns = 1024
)

// run is a directory of which one name after the other is looked up. Tree.mu guards
// it.
type run struct {
	// cursor leads to what was not asked yet, window is how much of it is asked next.
	cursor string
	window int
	// left is how many of the names that were asked ahead are not looked up yet.
	left int
	// end says that there are no more; busy that they are being asked.
	end, busy bool
}

// met notes that e was looked up in dir. asked says that its attributes had to be
// asked: the second such name of a directory begins a run. It does not matter in
// which order the names come, as long as all do.
func (t *Tree) met(dir string, e *manifest.Entry, asked bool) {
	if e.Kind == manifest.Directory || e.Object.Key == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.mu.runs[dir]
	switch {
	case t.mu.closed, r == nil && !asked:
		return
	case r == nil, asked && r.end && !r.busy:
		if len(t.mu.runs) >= mostRuns {
			clear(t.mu.runs)
		}
		t.mu.runs[dir] = &run{}
		return
	case !asked && r.window == 0:
		return
	}
	r.left--
	if r.busy || r.end || r.left > r.window/2 {
		return
	}
	if r.window == 0 {
		r.cursor = manifest.CursorAfter(e.Object.Key)
	}
	r.window = min(max(2*r.window, leastWindow), mostWindow)
	r.busy = true
	t.running.Add(1)
	go t.askAhead(dir, r, r.cursor, r.window)
}

// askAhead asks the attributes of up to n names of dir after cursor.
func (t *Tree) askAhead(dir string, r *run, cursor string, n int) {
	defer t.running.Done()
	entries, _, err := t.base.ReadDir(t.root, dir, cursor, n)
	t.mu.Lock()
	r.left = max(r.left, 0) + len(entries)
	r.end = err != nil || len(entries) == 0
	if len(entries) > 0 {
		r.cursor = entries[len(entries)-1].Cursor
	}
	t.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if e.Kind == manifest.Directory || t.recall(e) {
			continue
		}
		select {
		case t.slots <- struct{}{}:
		case <-t.root.Done():
			return
		}
		f, own, err := t.join(e.Object)
		if err != nil || own == nil {
			<-t.slots
			if err != nil {
				return
			}
			continue
		}
		obj := e.Object
		go func() {
			defer t.running.Done()
			t.fly(own, f, obj, t.later)
			<-t.slots
		}()
	}
	t.mu.Lock()
	r.busy = false
	t.mu.Unlock()
}
