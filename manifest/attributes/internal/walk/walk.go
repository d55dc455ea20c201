package walk

import "time"

const (
	// least and Most are how many names are asked for ahead.
	least = 16
	// Most is the bound of it, and of a doubling that begins with few.
	Most = 2048
	// Idle is for how long nobody looks at a directory before what was not asked yet is
	// withdrawn. Who stats name after name pauses for microseconds, or waits, which counts as
	// looking; a process that was killed says nothing.
	Idle = 2 * time.Second
)

// Ask is what to ask for: so many names after the key After; none if Names is 0.
type Ask struct {
	After string
	Names int
}

// Walk is a directory of which one name after the other is looked at. The zero value is
// one of which one name was.
type Walk struct {
	// last is the key after which nothing was asked for yet, window is how many names are
	// asked for next.
	last   string
	window int
	// left is how many of the names that were asked for are not looked up yet.
	left int
	// end says that there are no more, asking that they are being asked for.
	end, asking bool
	// seen is when somebody looked last, waiting how many do until they have an answer.
	seen    time.Time
	waiting int
}

// Begin returns a walk of which one name was looked at now.
func Begin(now time.Time) Walk { return Walk{seen: now} }

// Over reports whether the walk has come to the end of the directory: somebody who looks
// at what is not known begins another one.
func (w *Walk) Over() bool { return w.end && !w.asking }

// Again begins another walk of the directory. Who waits for answers of the one before still does.
func (w *Walk) Again() { *w = Walk{seen: w.seen, waiting: w.waiting} }

// Looked notes that key was looked up; asked says that it had to be asked for. It does not
// matter in which order the names come, as long as all do.
func (w *Walk) Looked(key string, asked bool, now time.Time) Ask {
	w.seen = now
	if !asked && w.window == 0 {
		return Ask{}
	}
	w.left--
	if w.asking || w.end || w.left > w.window/2 {
		return Ask{}
	}
	if w.window == 0 {
		w.last = key
	}
	return w.more()
}

// Listed notes that the names up to the key last are being asked for together, by somebody
// who lists them with their attributes and goes on with what follows.
func (w *Walk) Listed(last string, names int, now time.Time) Ask {
	w.seen = now
	w.left = max(w.left-names, 0)
	if w.last < last {
		w.last, w.left = last, 0
	}
	w.window = min(max(w.window, names), Most)
	if w.asking || w.end || w.left > w.window/2 {
		return Ask{}
	}
	return w.more()
}

// more widens the window.
func (w *Walk) more() Ask {
	w.window = min(max(2*w.window, least), Most)
	w.asking = true
	return Ask{After: w.last, Names: w.window}
}

// Found notes what an [Ask] has found: so many names up to the key last.
func (w *Walk) Found(last string, names int) {
	w.left = max(w.left, 0) + names
	w.end = names == 0
	if w.last < last {
		w.last = last
	}
}

// Asked notes that the requests of an [Ask] are made.
func (w *Walk) Asked() { w.asking = false }

// Waits notes that somebody waits for an answer, Waited that they do no more.
func (w *Walk) Waits() { w.waiting++ }

// Waited is the end of [Walk.Waits].
func (w *Walk) Waited(now time.Time) {
	w.waiting--
	w.seen = now
}

// Awaited reports whether somebody waits.
func (w *Walk) Awaited() bool { return w.waiting > 0 }

// Deserted reports whether nobody looks any more. If somebody does, it returns when to look
// again.
func (w *Walk) Deserted(now time.Time) (deserted bool, again time.Duration) {
	if w.Awaited() {
		return false, Idle
	}
	again = w.seen.Add(Idle).Sub(now)
	return again <= 0, again
}
