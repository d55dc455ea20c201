package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

const (
	// packLimit is the largest body that is packed. Below it a system call or two
	// per request weigh more than copying the bytes through the process.
	packLimit = 64 << 10
	// packSize is when a pack is full.
	packSize = 128 << 20
	// tailSize is when a file that grows by appends is long enough.
	tailSize = 64 << 20
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

// dataDir keeps the bytes of all versions below dir: small bodies in packs, large
// ones in a blob each. It does not know whose they are.
type dataDir struct {
	dir    string
	log    *slog.Logger
	lastID atomic.Uint64

	// The lock of packs is taken alone.
	packs struct {
		sync.Mutex
		// current is the pack that is being filled, end where its free part begins.
		current *file
		end     int64
		// open are all packs, by number.
		open map[uint64]*file
	}
}

// release drops a reference for each extent and removes files that have none
// left. It must not be called with a lock held, for removing takes time.
func (d *dataDir) release(extents []extent) {
	for i := range extents {
		if f := extents[i].file; f.refs.Add(-1) == 0 {
			d.removeFile(f)
		}
	}
}

func (d *dataDir) removeFile(f *file) {
	path := d.path(f.id, f.packed)
	if f.packed {
		d.packs.Lock()
		delete(d.packs.open, f.id)
		d.packs.Unlock()
		if err := f.pack.Close(); err != nil {
			d.log.Warn("close pack", "path", path, "error", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("remove file without references", "path", path, "error", err)
	}
}

// path says where the file with the given number lies.
func (d *dataDir) path(id uint64, pack bool) string {
	if pack {
		return filepath.Join(d.dir, "packs", fmt.Sprintf("%016x", id))
	}
	const digits = "0123456789abcdef"
	// Built by hand: this is on the way of every large GET.
	buf := make([]byte, 0, len(d.dir)+32)
	buf = append(buf, d.dir...)
	buf = append(buf, "/blobs/"...)
	buf = append(buf, digits[id>>4&15], digits[id&15], '/')
	for shift := 60; shift >= 0; shift -= 4 {
		buf = append(buf, digits[id>>shift&15])
	}
	return string(buf)
}

// newID returns a number that no file has had.
func (d *dataDir) newID() uint64 { return d.lastID.Add(1) }

// createBlob makes an empty file for one body. The caller holds its first
// reference.
func (d *dataDir) createBlob() (*file, *os.File, error) {
	f := &file{id: d.newID()}
	path := d.path(f.id, false)
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
func (d *dataDir) pack(body []byte) (extent, error) {
	e, err := d.reserve(int64(len(body)))
	if err != nil {
		return extent{}, err
	}
	if _, err := e.file.pack.WriteAt(body, e.off); err != nil {
		d.release([]extent{e})
		return extent{}, fmt.Errorf("write pack: %w", err)
	}
	return e, nil
}

// reserve gives out n bytes of the pack that is being filled.
func (d *dataDir) reserve(n int64) (extent, error) {
	d.packs.Lock()
	var full []extent
	if d.packs.current != nil && d.packs.end+n > packSize {
		full = []extent{{file: d.packs.current}}
		d.packs.current = nil
	}
	if d.packs.current == nil {
		f, err := d.createPack()
		if err != nil {
			d.packs.Unlock()
			d.release(full)
			return extent{}, err
		}
		d.packs.current, d.packs.end = f, 0
	}
	e := extent{d.packs.current, d.packs.end, n}
	d.packs.end += n
	e.file.refs.Add(1)
	d.packs.Unlock()
	d.release(full)
	return e, nil
}

// createPack makes an empty pack, with one reference. The caller holds packs.
func (d *dataDir) createPack() (*file, error) {
	id := d.newID()
	w, err := os.OpenFile(d.path(id, true), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	f := &file{id: id, packed: true, pack: w}
	f.refs.Store(1)
	d.packs.open[id] = f
	return f, nil
}

// placeTail writes body behind the last extent if that is the end of a blob and
// the blob is not long yet, else into a new blob. It returns the extent with a
// reference. The caller holds the key's append lock: no other append writes to
// that blob, and nothing else ever writes to a blob that exists. Bytes behind the
// end of an extent, which an append that failed leaves, are never overwritten.
func (d *dataDir) placeTail(extents []extent, body []byte) (extent, error) {
	if len(extents) > 0 {
		last := extents[len(extents)-1]
		if !last.file.packed && last.off+last.n < tailSize {
			e, err := d.extend(last, body)
			if err == nil || !errors.Is(err, errTailTaken) {
				return e, err
			}
		}
	} else if len(body) <= packLimit {
		return d.pack(body)
	}
	f, w, err := d.createBlob()
	if err != nil {
		return extent{}, err
	}
	_, err = w.Write(body)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		d.release([]extent{{file: f}})
		return extent{}, fmt.Errorf("write blob: %w", err)
	}
	return extent{f, 0, int64(len(body))}, nil
}

var errTailTaken = errors.New("file is longer than its last extent")

func (d *dataDir) extend(last extent, body []byte) (extent, error) {
	w, err := os.OpenFile(d.path(last.file.id, false), os.O_WRONLY, 0)
	if err != nil {
		return extent{}, fmt.Errorf("open blob: %w", err)
	}
	defer w.Close()
	info, err := w.Stat()
	if err != nil {
		return extent{}, fmt.Errorf("stat blob: %w", err)
	}
	end := last.off + last.n
	if info.Size() != end {
		return extent{}, errTailTaken
	}
	if _, err := w.WriteAt(body, end); err != nil {
		return extent{}, fmt.Errorf("write blob: %w", err)
	}
	last.file.refs.Add(1)
	return extent{last.file, end, int64(len(body))}, nil
}

// close closes the packs.
func (d *dataDir) close() (err error) {
	d.packs.Lock()
	defer d.packs.Unlock()
	for _, f := range d.packs.open {
		err = errors.Join(err, f.pack.Close())
	}
	return err
}
