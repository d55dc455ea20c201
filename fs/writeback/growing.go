package writeback

import "time"

const (
	// logAge is how long a file must have been open, and logBursts in how many different
	// seconds it must have grown, to be taken for a log; slower than logSpeed, in bytes a
	// second since it was opened. A checkpoint is faster.
	logAge    = 10 * time.Second
	logBursts = 3
	logSpeed  = 2 << 20
	// logEvery is how often a log is published while it is open; and a second more for
	// every logBytes of it, since it is compared with what was published.
	logEvery = 5 * time.Second
	logBytes = 20 << 20
)

// growth is how a file that is open for writing has grown.
type growth struct {
	// since is when it was opened, or became shorter, at what size.
	since time.Time
	from  int64
	// bursts counts the seconds in which it grew, the last of which began at last.
	bursts int
	last   time.Time
}

// note takes a look at a file that had before bytes and has size.
func (g *growth) note(before, size int64, at time.Time) {
	switch {
	case g.since.IsZero() || size < before:
		*g = growth{since: at, from: size}
	case size > before && at.Sub(g.last) >= time.Second:
		g.bursts++
		g.last = at
	}
}

// steady reports whether a file of size bytes grows as a log does.
func (g *growth) steady(size int64, at time.Time) bool {
	age := at.Sub(g.since)
	return age >= logAge && g.bursts >= logBursts && float64(size-g.from) <= logSpeed*age.Seconds()
}

// commitLogs commits files that stay open and grow at their end, from time to time,
// so that what is there so far is published.
func (s *Space) commitLogs(at time.Time) {
	s.mu.Lock()
	var due []*File
	for _, w := range s.mu.writing {
		st := s.mu.Files[w.file.id]
		if st == nil || !st.Staged || !st.Linked || st.Symlink || st.IsSuspect() || w.opens <= 0 || temporary(st.Dir, st.Name) {
			continue
		}
		w.log = w.growth.steady(w.size, at)
		if st.Gen != w.gen {
			w.gen, w.committed = st.Gen, at
		}
		every := logEvery + time.Duration(w.size/logBytes)*time.Second
		had := st.Size
		if st.Gen == st.BaseGen {
			// Nothing was committed since: the object that it replaces is whole.
			had = max(had, st.Object.Size)
		}
		news := w.size > had || w.cut && w.size < had
		if w.log && news && at.Sub(w.committed) >= every && s.idle(st.Key) {
			due = append(due, w.file)
		}
	}
	s.mu.Unlock()
	for _, f := range due {
		if err := f.commit(false); err != nil {
			s.log.Warn("what a file that stays open has so far could not be recorded", "file", f.id, "err", err)
		}
	}
}
