package fs

import (
	"syscall"

	"github.com/pailfs/pailfs/fs/writeback"
)

// decidePartial chooses the mode of an inode of whose bytes only some are staged: all
// reads and writes come to us. The kernel does not mix that with a file that it reads
// itself.
func (st *fileState) decidePartial() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch st.mu.mode {
	case passthrough:
		return syscall.ETXTBSY
	case undecided:
		st.mu.mode = cached
	}
	return nil
}

// decideBacking chooses the mode of an inode that h has open, if its bytes are staged.
func (w *writePath) decideBacking(st *fileState, h *writeback.Handle, write bool) error {
	if h.File().Partial() {
		return st.decidePartial()
	}
	if staged := h.OSFile(); staged != nil {
		return w.decideStaged(st, staged, write)
	}
	return nil
}
