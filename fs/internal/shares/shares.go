package shares

import "syscall"

// Shares says how many each user has. It is not safe for concurrent use.
type Shares struct {
	most, owner uint32
	used        uint32
	// others is what those have who may not have all.
	others uint32
	users  map[uint32]uint32
}

// New returns shares of most things. The user owner may have all of them, as root may.
func New(most, owner uint32) *Shares {
	return &Shares{most: most, owner: owner, users: make(map[uint32]uint32)}
}

func (s *Shares) privileged(uid uint32) bool { return uid == 0 || uid == s.owner }

// Take notes that a user has one more, or returns why it may not: ENOSPC where there is
// none left, EDQUOT where the rest is for others.
func (s *Shares) Take(uid uint32) error {
	if s.used >= s.most {
		return syscall.ENOSPC
	}
	if !s.privileged(uid) {
		shared, own := s.most/4*3, s.users[uid]
		if s.others >= shared || own >= (shared-(s.others-own))/2 {
			return syscall.EDQUOT
		}
		s.others++
	}
	s.used++
	s.users[uid]++
	return nil
}

// Give notes that a user has one less.
func (s *Shares) Give(uid uint32) {
	if s.users[uid]--; s.users[uid] == 0 {
		delete(s.users, uid)
	}
	s.used--
	if !s.privileged(uid) {
		s.others--
	}
}
