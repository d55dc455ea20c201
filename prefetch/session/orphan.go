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
	b.orphans.drop(s)
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
			b.orphans.add(s)
		}
	}
}

// abandoned reports whether the clients of s have ended without leaving it to somebody.
func (s *session) abandoned() bool { return !s.orphaned.IsZero() && !s.kept }

// yield ends the session of a user that has been an orphan for longest, and reports
// whether there was one.
func (b *Book) yield(u budget.User) bool {
	oldest := b.orphans.oldest(u)
	if oldest == nil {
		return false
	}
	b.totals.Leaked += int64(b.end(oldest))
	return true
}

// Yields reports whether a session of a user would give way.
func (b *Book) Yields(u budget.User) bool { return b.orphans.oldest(u) != nil }

// orphans are the sessions that give way to others of their user.
type orphans struct {
	sessions map[*session]bool
	// yields is what the names of those of a user are charged, in bytes.
	yields map[budget.User]int64
}

func (o orphans) add(s *session) {
	o.sessions[s] = true
	o.yields[s.key.User()] += s.names
}

// drop takes s from among them.
func (o orphans) drop(s *session) {
	if !o.sessions[s] {
		return
	}
	delete(o.sessions, s)
	u := s.key.User()
	if o.yields[u] -= s.names; o.yields[u] == 0 {
		delete(o.yields, u)
	}
}

// shrink notes that the names of s cost less, by so many bytes.
func (o orphans) shrink(s *session, cost int64) {
	if o.sessions[s] {
		o.yields[s.key.User()] -= cost
	}
}

// oldest returns the session of a user that has been an orphan for longest, or nil.
func (o orphans) oldest(u budget.User) *session {
	var oldest *session
	for s := range o.sessions {
		if s.key.User() == u && (oldest == nil || s.orphaned.Before(oldest.orphaned) || s.orphaned.Equal(oldest.orphaned) && s.id < oldest.id) {
			oldest = s
		}
	}
	return oldest
}
