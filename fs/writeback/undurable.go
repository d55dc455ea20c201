package writeback

import (
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// undurable has the files of which the loss of power would take what was closed, renamed or
// described last.
type undurable struct {
	// files have 0 where the disk does not have the bytes, and else where the record ends in the
	// journal that says that it has them, or that has them itself.
	files map[order.FileID]int64
	// due are those that wait for the journal, in the order of their positions, and such as have
	// another one by now.
	due []undurableUntil
}

type undurableUntil struct {
	pos  int64
	file order.FileID
}

func newUndurable() undurable { return undurable{files: make(map[order.FileID]int64)} }

// dirty notes that the disk does not have the bytes of a file.
func (u *undurable) dirty(id order.FileID) { u.files[id] = 0 }

// recorded notes that a file survives the loss of power once the journal is on the disk up to
// pos, which is not before those that were told, by what changes its bytes if bytes is set,
// else by what changes its name.
func (u *undurable) recorded(id order.FileID, pos int64, bytes bool) {
	if before, ok := u.files[id]; ok && before == 0 && !bytes {
		return // its bytes are still missing
	}
	u.files[id] = pos
	if u.due = append(u.due, undurableUntil{pos, id}); len(u.due) > 2*len(u.files)+64 {
		u.due = slices.DeleteFunc(u.due, func(x undurableUntil) bool { return u.files[x.file] != x.pos })
	}
}

// forget takes a file for one that survives, or of which nobody asks any more.
func (u *undurable) forget(id order.FileID) { delete(u.files, id) }

// settle forgets the files that survive since the journal is on the disk up to synced, and
// returns how many are left.
func (u *undurable) settle(synced int64) int {
	n := 0
	for n < len(u.due) && u.due[n].pos <= synced {
		if x := u.due[n]; u.files[x.file] == x.pos {
			delete(u.files, x.file)
		}
		n++
	}
	if u.due = u.due[n:]; len(u.due) == 0 {
		u.due = nil
	}
	return len(u.files)
}

// undurableUntil notes that the loss of power takes what an operation is to publish until the
// journal is on the disk up to pos: its bytes may be there, but not what is to become of them.
// s.mu is held.
func (s *Space) undurableUntil(id uint64, pos int64) {
	if op := s.mu.Ops[id]; op != nil && op.Kind == order.Put {
		s.mu.undurable.recorded(op.File, pos, false)
	}
}

// survives notes that the bytes of a file survive the loss of power, as the journal says at pos. What
// is to become of them may not: then the file does once the journal is on the disk up to there.
// s.mu is held.
func (s *Space) survives(id order.FileID, pos int64) {
	s.mu.undurable.forget(id)
	f := s.mu.Files[id]
	if f == nil || f.IsSuspect() {
		return
	}
	k := s.mu.Keys[f.Key]
	if k == nil {
		return
	}
	for _, op := range []uint64{k.Pending, k.Flight} {
		if run := s.mu.runs[op]; run != nil && run.pos > s.journal.Synced() && s.mu.Ops[op].Kind == order.Put && s.mu.Ops[op].File == id {
			s.mu.undurable.recorded(id, pos, true)
		}
	}
}
