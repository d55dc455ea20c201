package writeback

import (
	"context"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// A request whose answer was lost may still be on its way, and be carried out after
// later ones.

// lateMost is for how long after a request for an upload has failed it may still be
// carried out, for all that is expected of networks and servers.
const lateMost = time.Minute

// ask is what is known of a request for an upload whose name is not known: when it ended, if
// in this run, and when its upload was looked for.
type ask struct{ at, looked time.Time }

// lookAgain is when the upload that u stands for is to be looked for, if not now. s.mu is
// held.
func (s *Space) lookAgain(u *state.Upload) time.Time {
	a := s.mu.asks[u.ID]
	if next := a.at.Add(lateMost); a.looked.After(a.at) && time.Now().Before(next) {
		return next
	}
	return time.Time{}
}

// looked notes that the uploads of a key were listed from began on, and what no record
// speaks of aborted. One that was asked for a moment before may begin yet: it is looked
// for once more at the time that is returned.
func (s *Space) looked(id string, began time.Time) (again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.using[id] > 0 {
		return time.Time{} // it is being asked for again
	}
	a := s.mu.asks[id]
	if a.at.IsZero() {
		// By a run before this one: it may have ended just now.
		a.at = began
	}
	if began.Sub(a.at) >= lateMost {
		s.endUpload(id)
		return time.Time{}
	}
	a.looked = time.Now()
	s.mu.asks[id] = a
	return a.at.Add(lateMost)
}

// silence aborts the uploads of a key that a request of ours may still complete whose
// answer was lost, but for keep: what is then seen at the key stays, and what is put there
// is not replaced by what is older.
func (s *Space) silence(ctx context.Context, key, keep string) error {
	s.mu.Lock()
	var late []state.Upload
	if k := s.mu.Keys[key]; k != nil && len(k.Maybe) > 0 {
		for _, u := range s.mu.Uploads {
			if u.Key == key && u.ID != keep && !u.Asked() {
				late = append(late, u)
			}
		}
	}
	s.mu.Unlock()
	for _, u := range late {
		err := s.bucket.AbortUpload(ctx, oss.MultipartUpload{Key: u.Key, ID: u.ID})
		switch {
		case err == nil:
			s.aborted(u.ID)
		case !permanent(err):
			return fmt.Errorf("abort an upload of %q whose end is not known: %w", key, err)
		}
		// Who may not abort must be able to publish all the same.
	}
	return nil
}
