package writeback

import "time"

// emptyFor is for how long a directory that was just made holds what was made in it
// here, and nothing else: as long as a name is believed not to exist. Whoever unpacks
// an archive would else ask for a listing of each directory.
const emptyFor = nameValidity

// maxMade is from how many directories on the old ones are looked for.
const maxMade = 1024

// madeDirs are directories that were made here a moment ago. Space.mu guards them.
type madeDirs map[string]time.Time

// add notes that dir was made now.
func (m madeDirs) add(dir string) {
	now := time.Now()
	if len(m) >= maxMade {
		for old, at := range m {
			if now.Sub(at) >= emptyFor {
				delete(m, old)
			}
		}
	}
	m[dir] = now
}

// until returns until when dir has nothing but what was made in it here; the zero time
// if that is not so.
func (m madeDirs) until(dir string) time.Time {
	at, ok := m[dir]
	if !ok {
		return time.Time{}
	}
	if end := at.Add(emptyFor); time.Now().Before(end) {
		return end
	}
	delete(m, dir)
	return time.Time{}
}
