package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
)

const (
	// packLimit is the largest body that is packed. Below it a system call or two
	// per request weigh more than copying the bytes through the process.
	packLimit = 64 << 10
	// packSize is when a pack is full.
	packSize = 128 << 20
)

// file is one file of bytes, written once. It is removed when its last
// reference goes.
type file struct {
	id   uint64
	refs atomic.Int64
	// packed says that many bodies share the file.
	packed bool
	// pack is open for as long as the file lives if it is packed, else nil. A pack is
	// read at offsets, never by position, so the descriptor can be shared.
	pack *os.File
}

// extent is a piece of a file. Whoever keeps one holds a reference.
type extent struct {
	file *file
	off  int64
	n    int64
}

// retain takes a reference for each extent. Another reference must be held
// already.
func retain(extents []extent) {
	for i := range extents {
		extents[i].file.refs.Add(1)
	}
}

// release drops a reference for each extent and removes files that have none
// left. It must not be called with a lock held, for removing takes time.
func (s *Store) release(extents []extent) {
	for i := range extents {
		if f := extents[i].file; f.refs.Add(-1) == 0 {
			s.removeFile(f)
		}
	}
}

func (s *Store) removeFile(f *file) {
	path := s.path(f.id, f.packed)
	if f.packed {
		s.packs.Lock()
		delete(s.packs.open, f.id)
		s.packs.Unlock()
		if err := f.pack.Close(); err != nil {
			s.log.Warn("close pack", "path", path, "error", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("remove file without references", "path", path, "error", err)
	}
}

// path says where the file with the given number lies.
func (s *Store) path(id uint64, pack bool) string {
	if pack {
		return filepath.Join(s.dir, "packs", fmt.Sprintf("%016x", id))
	}
	const digits = "0123456789abcdef"
	// Built by hand: this is on the way of every large GET.
	buf := make([]byte, 0, len(s.dir)+32)
	buf = append(buf, s.dir...)
	buf = append(buf, "/blobs/"...)
	buf = append(buf, digits[id>>4&15], digits[id&15], '/')
	for shift := 60; shift >= 0; shift -= 4 {
		buf = append(buf, digits[id>>shift&15])
	}
	return string(buf)
}

// newID returns a number that no file has had.
func (s *Store) newID() uint64 { return s.lastID.Add(1) }

// createBlob makes an empty file for one body. The caller holds its first
// reference.
func (s *Store) createBlob() (*file, *os.File, error) {
	f := &file{id: s.newID()}
	path := s.path(f.id, false)
	w, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, nil, fmt.Errorf("create blob: %w", err)
		}
		w, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create blob: %w", err)
	}
	f.refs.Store(1)
	return f, w, nil
}

// pack stores a small body and returns its extent, with a reference.
func (s *Store) pack(body []byte) (extent, error) {
	e, err := s.reserve(int64(len(body)))
	if err != nil {
		return extent{}, err
	}
	if _, err := e.file.pack.WriteAt(body, e.off); err != nil {
		s.release([]extent{e})
		return extent{}, fmt.Errorf("write pack: %w", err)
	}
	return e, nil
}

// reserve gives out n bytes of the pack that is being filled.
func (s *Store) reserve(n int64) (extent, error) {
	s.packs.Lock()
	var full []extent
	if s.packs.current != nil && s.packs.end+n > packSize {
		full = []extent{{file: s.packs.current}}
		s.packs.current = nil
	}
	if s.packs.current == nil {
		f, err := s.createPack()
		if err != nil {
			s.packs.Unlock()
			s.release(full)
			return extent{}, err
		}
		s.packs.current, s.packs.end = f, 0
	}
	e := extent{s.packs.current, s.packs.end, n}
	s.packs.end += n
	e.file.refs.Add(1)
	s.packs.Unlock()
	s.release(full)
	return e, nil
}

// createPack makes an empty pack, with one reference. The caller holds packs.
func (s *Store) createPack() (*file, error) {
	id := s.newID()
	w, err := os.OpenFile(s.path(id, true), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	f := &file{id: id, packed: true, pack: w}
	f.refs.Store(1)
	s.packs.open[id] = f
	return f, nil
}
