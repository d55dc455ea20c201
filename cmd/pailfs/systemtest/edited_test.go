package systemtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
)

// change is a write of size bytes at off, or a truncation to off.
type change struct {
	off, size int64
	cut       bool
}

// edited is an object that is edited, and what is known of it. The bytes of the n-th edit
// are those of version n+2 of its key at the same offset, so that no two are alike.
type edited struct {
	base version

	mu    sync.Mutex
	edits []change
	// safe is how many of them were acknowledged.
	safe int
}

// begin notes an edit that is about to be made, and returns its number.
func (e *edited) begin(d change) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.edits = append(e.edits, d)
	return len(e.edits) - 1
}

// keep notes that all edits so far are acknowledged.
func (e *edited) keep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.safe = len(e.edits)
}

// acknowledged returns how many edits are.
func (e *edited) acknowledged() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.safe
}

// write returns the bytes that the n-th edit writes from off on.
func (e *edited) write(n int, off, size int64) []byte {
	p := make([]byte, size)
	version{Key: e.base.Key, Number: n + 2}.fill(p, off)
	return p
}

// size returns how large the first n edits left the object.
func (e *edited) size(n int) int64 {
	size := e.base.Size
	for _, d := range e.edits[:n] {
		if d.cut {
			size = d.off
		} else {
			size = max(size, d.off+d.size)
		}
	}
	return size
}

// content returns what the first n edits left from off on.
func (e *edited) content(n int, off, size int64) []byte {
	p := make([]byte, max(min(size, e.size(n)-off), 0))
	e.base.fill(p[:max(min(int64(len(p)), e.base.Size-off), 0)], off)
	for i, d := range e.edits[:n] {
		from, to := max(d.off, off), min(d.off+d.size, off+int64(len(p)))
		switch {
		case d.cut:
			clear(p[min(from-off, int64(len(p))):])
		case from < to:
			copy(p[from-off:], e.write(i, from, to-from))
		}
	}
	return p
}

// errNotWritten is that something was read that had not been written.
var errNotWritten = errors.New("not what was written")

// edit opens the file, edits it so many times, and closes it. What fsync accepts is
// acknowledged, and, if that is meant, what close does.
func (e *edited) edit(path string, rng *rand.Rand, times int, closeKeeps bool) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for range times {
		if err := e.once(f, rng); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if closeKeeps {
		e.keep()
	}
	return nil
}

// rewrite opens the file with O_TRUNC, gives it a size of at most so many bytes, writes into
// it, may cut it, and closes it: whoever is uploading what it was, or what it has so far, finds
// something else.
func (e *edited) rewrite(path string, rng *rand.Rand, most int64, closeKeeps bool) error {
	e.begin(change{cut: true})
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	size := 1<<20 + rng.Int64N(most-1<<20)
	if rng.IntN(4) > 0 {
		e.begin(change{off: size, cut: true})
		err = f.Truncate(size)
	}
	for i := 0; i < 1+rng.IntN(3) && err == nil; i++ {
		d := change{off: rng.Int64N(size/4096) * 4096, size: 1 + rng.Int64N(256<<10)}
		if i == 0 {
			d.off = 0
		}
		n := e.begin(d)
		_, err = f.WriteAt(e.write(n, d.off, d.size), d.off)
	}
	if rng.IntN(3) == 0 && err == nil {
		e.begin(change{off: size / 2, cut: true})
		err = f.Truncate(size / 2)
	}
	if rng.IntN(4) == 0 && err == nil {
		if err = f.Sync(); err == nil {
			e.keep()
		}
	}
	if err = errors.Join(err, f.Close()); err == nil && closeKeeps {
		e.keep()
	}
	return err
}

// once makes an edit of an open file, and may read or sync it.
func (e *edited) once(f *os.File, rng *rand.Rand) (err error) {
	d := someChange(rng, e.size(len(e.edits)))
	n := e.begin(d)
	if d.cut {
		err = f.Truncate(d.off)
	} else {
		_, err = f.WriteAt(e.write(n, d.off, d.size), d.off)
	}
	if err != nil {
		return err
	}
	if rng.IntN(4) == 0 {
		got := make([]byte, 20_000)
		off := rng.Int64N(e.size(n+1) - int64(len(got)))
		if _, err := f.ReadAt(got, off); err != nil {
			return err
		}
		if !bytes.Equal(got, e.content(n+1, off, int64(len(got)))) {
			return fmt.Errorf("%s: after %d edits, what is read at %d: %w", e.base.Key, n+1, off, errNotWritten)
		}
	}
	if rng.IntN(2) == 0 {
		if err := f.Sync(); err != nil {
			return err
		}
		e.keep()
	}
	return nil
}

// someChange returns an edit of a file: of some bytes, of some chunks, at its end, or a
// truncation.
func someChange(rng *rand.Rand, size int64) change {
	switch rng.IntN(24) {
	case 0:
		return change{off: size - rng.Int64N(min(3<<20, size/4)), cut: true}
	case 1:
		return change{off: size + rng.Int64N(2<<20), cut: true}
	case 2, 3, 4:
		n := size/64 + rng.Int64N(size/20)
		return change{off: rng.Int64N(size - n), size: n}
	case 5, 6, 7, 8:
		return change{off: size, size: 1 + rng.Int64N(100_000)}
	default:
		n := 1 + rng.Int64N(10_000)
		return change{off: rng.Int64N(size - n), size: n}
	}
}

// check fails unless an object is what the first safe edits left, but for bytes that later
// ones wrote.
func (e *edited) check(object []byte, safe int) error {
	// Between what was acknowledged and a later end there may be zeros.
	least := e.size(safe)
	most := least
	for _, d := range e.edits[safe:] {
		if d.cut {
			least = min(least, d.off)
		}
		most = max(most, d.off+d.size)
	}
	if size := int64(len(object)); size < least || size > most {
		return fmt.Errorf("%s: %d bytes, %d were acknowledged, and it was never less than %d or more than %d", e.base.Key, size, e.size(safe), least, most)
	}
	const block = 64 << 10
	for off := int64(0); off < int64(len(object)); off += block {
		got := object[off:min(off+block, int64(len(object)))]
		want := e.content(safe, off, int64(len(got)))
		if bytes.Equal(got, want) {
			continue
		}
		if i := e.foreign(safe, got, want, off, least); i >= 0 {
			return fmt.Errorf("%s: of %d edits %d were acknowledged, and the byte at %d is neither what they left there nor of a later one: %x, want %x",
				e.base.Key, len(e.edits), safe, off+int64(i), got[i:min(i+16, len(got))], want[min(i, len(want)):min(i+16, len(want))])
		}
	}
	return nil
}

// foreign returns the index of a byte of got, at off, that is neither in want nor what an
// edit after the safe ones made it, which from zeros on may be nothing; -1 if there is none.
func (e *edited) foreign(safe int, got, want []byte, off, zeros int64) int {
	right := make([]bool, len(got))
	for i, b := range got {
		right[i] = i < len(want) && b == want[i] || b == 0 && off+int64(i) >= zeros
	}
	for n := safe; n < len(e.edits); n++ {
		d := e.edits[n]
		from, to := max(d.off, off), min(d.off+d.size, off+int64(len(got)))
		if from >= to {
			continue
		}
		for i, b := range e.write(n, from, to-from) {
			at := from - off + int64(i)
			right[at] = right[at] || got[at] == b
		}
	}
	return slices.Index(right, false)
}
