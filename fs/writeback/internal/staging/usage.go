package staging

import (
	"sync"
	"time"
)

// Usage is how many bytes staged files occupy. It is safe for concurrent use.
//
// Lock order: looking, mu.
type Usage struct {
	// size asks the disk for what a file occupies, 0 if it is not there.
	size func(id uint64) (bytes int64, err error)

	// looking is held while the disk is asked; it guards at, the time of the last answer.
	looking sync.Mutex
	at      time.Time

	mu struct {
		sync.Mutex
		// bytes is what each file occupied at the last look, total all of that.
		bytes map[uint64]int64
		total int64
		// changed are the files to be measured, measuring those that are.
		changed, measuring map[uint64]bool
	}
}

// NewUsage returns the usage of no files.
func NewUsage(size func(id uint64) (bytes int64, err error)) *Usage {
	u := &Usage{size: size}
	u.mu.bytes, u.mu.changed = make(map[uint64]int64), make(map[uint64]bool)
	return u
}

// Changed has a file measured at the next look.
func (u *Usage) Changed(id uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.changed[id] = true
}

// Forget does not count a file any more.
func (u *Usage) Forget(id uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.total -= u.mu.bytes[id]
	delete(u.mu.bytes, id)
	delete(u.mu.changed, id)
	delete(u.mu.measuring, id)
}

// Bytes returns what the files occupy, by a look that is not older than age. Before a look open
// is called, which says [Usage.Changed] of what may change by itself.
func (u *Usage) Bytes(age time.Duration, open func()) (int64, error) {
	u.looking.Lock()
	defer u.looking.Unlock()
	if time.Since(u.at) >= age {
		open()
		if err := u.look(); err != nil {
			return 0, err
		}
		u.at = time.Now()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.total, nil
}

// look measures what has changed. u.looking is held.
func (u *Usage) look() error {
	u.mu.Lock()
	ids := make([]uint64, 0, len(u.mu.changed))
	for id := range u.mu.changed {
		ids = append(ids, id)
	}
	u.mu.changed, u.mu.measuring = make(map[uint64]bool), u.mu.changed
	u.mu.Unlock()
	for i, id := range ids {
		bytes, err := u.size(id)
		if err != nil {
			u.again(ids[i:])
			return err
		}
		u.measured(id, bytes)
	}
	return nil
}

// measured notes what a file occupies, unless it was forgotten meanwhile.
func (u *Usage) measured(id uint64, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.measuring[id] {
		u.mu.total += bytes - u.mu.bytes[id]
		u.mu.bytes[id] = bytes
	}
}

// again has files measured at the next look that could not be at this one.
func (u *Usage) again(ids []uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		if u.mu.measuring[id] {
			u.mu.changed[id] = true
		}
	}
}
