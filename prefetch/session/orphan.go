package session

import (
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// A session whose clients have ended is an orphan: every open description by which it was
// called is closed. It stays for a successor, but gives way to what its user wants to
// announce or to open; one whose client has named no place for its state ends soon.

// orphanLife is how long such a one stays.
const orphanLife = time.Minute

// of returns the session that a call is about, and notes how the call came.
func (b *Book) of(now time.Time, n Name) (*session, error) {
	s, err := b.session(now, n.Session, n.UID)
	if err == nil {
		b.reached(s, n.Handle)
	}
	return s, err
}

// reached notes that somebody calls by an open description.
func (b *Book) reached(s *session, handle uint64) {
	b.cling(s)
	s.orphaned, s.kept = time.Time{}, false
	if handle == 0 {
		s.unseen = true
	} else {
		s.handles[handle] = true
	}
}

// Renew is a sign of life, and returns the lease.
func (b *Book) Renew(now time.Time, n Name) (time.Duration, error) {
	s, err := b.of(now, n)
	if err != nil {
		return 0, err
	}
	return s.params.Lease, nil
}

// Released notes that an open description is closed everywhere.
func (b *Book) Released(now time.Time, handle uint64) {
	for _, s := range b.sessions {
		if !s.handles[handle] {
			continue
		}
		delete(s.handles, handle)
		if len(s.handles) > 0 || s.unseen {
			continue
		}
		s.orphaned = now
		if s.abandoned() {
			b.orphans[s] = true
			b.yields[s.key.User()] += s.names
		}
	}
}

// abandoned reports whether the clients of s have ended without leaving it to somebody.
func (s *session) abandoned() bool { return !s.orphaned.IsZero() && !s.kept }

// cling takes s from among those that give way.
func (b *Book) cling(s *session) {
	if !b.orphans[s] {
		return
	}
	delete(b.orphans, s)
	u := s.key.User()
	if b.yields[u] -= s.names; b.yields[u] == 0 {
		delete(b.yields, u)
	}
}

// yield ends the session of a user that has been an orphan for longest, and reports
// whether there was one.
func (b *Book) yield(u budget.User) bool {
	var oldest *session
	for s := range b.orphans {
		if s.key.User() == u && (oldest == nil || s.orphaned.Before(oldest.orphaned) || s.orphaned.Equal(oldest.orphaned) && s.id < oldest.id) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	b.totals.Leaked += int64(b.end(oldest))
	return true
}

// Yields reports whether a session of a user would give way.
func (b *Book) Yields(u budget.User) bool {
	for s := range b.orphans {
		if s.key.User() == u {
			return true
		}
	}
	return false
}
