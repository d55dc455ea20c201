package writeback

// undurable has the files of which the loss of power would take what was closed or renamed last:
// 0 where the disk does not have the bytes, and else where the record ends in the journal that
// says that it has them, or that has them itself.
type undurable map[fileID]int64

// dirty notes that the disk does not have the bytes of a file.
func (u undurable) dirty(id fileID) { u[id] = 0 }

// recorded notes that a file survives the loss of power once the journal is on the disk up to
// pos, by what changes its bytes if bytes is set, else by what changes its name.
func (u undurable) recorded(id fileID, pos int64, bytes bool) {
	if before, ok := u[id]; ok && before == 0 && !bytes {
		return // its bytes are still missing
	}
	u[id] = pos
}

// settle forgets the files that survive since the journal is on the disk up to synced.
func (u undurable) settle(synced int64) {
	for id, pos := range u {
		if pos > 0 && pos <= synced {
			delete(u, id)
		}
	}
}
