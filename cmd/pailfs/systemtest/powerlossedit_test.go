package systemtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu"
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
	// safe is how many of them fsync has acknowledged.
	safe int
}

// write returns the bytes that an edit writes.
func (e *edited) write(n int, off, size int64) []byte {
	p := make([]byte, size)
	version{Key: e.base.Key, Number: n + 2}.fill(p, off)
	return p
}

// apply carries out an edit on a copy of the content.
func (e *edited) apply(content []byte, n int, d change) []byte {
	end := d.off
	if !d.cut {
		end = max(d.off+d.size, int64(len(content)))
	}
	if more := end - int64(len(content)); more > 0 {
		content = append(content, make([]byte, more)...)
	}
	content = content[:end]
	if !d.cut {
		copy(content[d.off:], e.write(n, d.off, d.size))
	}
	return content
}

// begin notes an edit that is about to be made, and returns its number.
func (e *edited) begin(d change) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.edits = append(e.edits, d)
	return len(e.edits) - 1
}

// synced notes that all edits so far are acknowledged.
func (e *edited) synced() {
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

// until edits the file, and closes it now and then, until the mount is gone, which returns
// nothing, or an error that shows that it holds something else than what was written.
func (e *edited) until(path string, rng *rand.Rand, closes bool) error {
	content := e.base.content()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	for err == nil {
		d := someEdit(rng, int64(len(content)))
		n := e.begin(d)
		if d.cut {
			err = f.Truncate(d.off)
		} else {
			_, err = f.WriteAt(e.write(n, d.off, d.size), d.off)
		}
		content = e.apply(content, n, d)
		if err == nil && rng.IntN(4) == 0 {
			got := make([]byte, 20_000)
			off := rng.Int64N(int64(len(content) - len(got)))
			if _, err = f.ReadAt(got, off); err == nil && !bytes.Equal(got, content[off:off+int64(len(got))]) {
				return fmt.Errorf("after %d edits, what is read at %d is not what was written", n+1, off)
			}
		}
		switch {
		case err != nil:
		case rng.IntN(4) > 1:
			if err = f.Sync(); err == nil {
				e.synced()
			}
		case closes && rng.IntN(3) == 0:
			_ = f.Close() // nothing is promised of a close
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	_ = f.Close() // the daemon is gone
	return nil
}

// someEdit returns an edit of a file: of some bytes, of some chunks, at its end, or a
// truncation.
func someEdit(rng *rand.Rand, size int64) change {
	switch rng.IntN(24) {
	case 0:
		return change{off: size - rng.Int64N(3<<20), cut: true}
	case 1:
		return change{off: size + rng.Int64N(2<<20), cut: true}
	case 2, 3, 4:
		n := 1<<20 + rng.Int64N(3<<20)
		return change{off: rng.Int64N(size - n), size: n}
	case 5, 6, 7, 8:
		return change{off: size, size: 1 + rng.Int64N(100_000)}
	default:
		n := 1 + rng.Int64N(10_000)
		return change{off: rng.Int64N(size - n), size: n}
	}
}

// check fails unless a content is that of the acknowledged edits, but for bytes that
// later ones wrote.
func (e *edited) check(content []byte) error {
	want := e.base.content()
	for n, d := range e.edits[:e.safe] {
		want = e.apply(want, n, d)
	}
	// Between what was acknowledged and a later end there may be zeros.
	least, most := int64(len(want)), int64(len(want))
	for _, d := range e.edits[e.safe:] {
		if d.cut {
			least = min(least, d.off)
		}
		most = max(most, d.off+d.size)
	}
	if size := int64(len(content)); size < least || size > most {
		return fmt.Errorf("%d bytes, %d were acknowledged, and it was never less than %d or more than %d", size, len(want), least, most)
	}
	const block = 4096
	for off := int64(0); off < int64(len(content)); off += block {
		got := content[off:min(off+block, int64(len(content)))]
		from := want[min(off, int64(len(want))):min(off+int64(len(got)), int64(len(want)))]
		if !bytes.Equal(got, from) {
			if i := e.foreign(got, from, off, least); i >= 0 {
				return fmt.Errorf("of %d edits %d were acknowledged, and the byte at %d is neither what they left there nor of a later one: %x, want %x",
					len(e.edits), e.safe, off+int64(i), got[i:min(i+16, len(got))], from[min(i, len(from)):min(i+16, len(from))])
			}
		}
	}
	return nil
}

// foreign returns the index of a byte of got, at off, that is neither in want nor what a
// later edit made it, which a truncation may have done from zeros on; -1 if there is none.
func (e *edited) foreign(got, want []byte, off, zeros int64) int {
	right := make([]bool, len(got))
	for i, b := range got {
		right[i] = i < len(want) && b == want[i] || b == 0 && off+int64(i) >= zeros
	}
	for n, d := range e.edits[e.safe:] {
		from, to := max(d.off, off), min(d.off+d.size, off+int64(len(got)))
		if from >= to {
			continue
		}
		for i, b := range e.write(e.safe+n, from, to-from) {
			at := from - off + int64(i)
			right[at] = right[at] || got[at] == b
		}
	}
	return slices.Index(right, false)
}

// Power is lost while a large object is edited, of which only what is written, or near it,
// is fetched. Once the next mount has drained, the object has every edit that fsync
// acknowledged, and beside that only bytes that it had before or that were written; the mount
// shows that at least, where something was closed since that is lost.
func TestAcknowledgedEditsOfALargeObjectOutliveTheLossOfPower(t *testing.T) {
	rng := newRandom(t)
	pending, published, copies := 0, 0, int64(0)
	for round := range max(rounds(t, 3), 3) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			w := newWorld(t)
			e := &edited{base: w.add("large", 64<<20+12345)[0].Versions[0]}
			disk := newPowerDisk(t, 256)
			w.cache = disk.cache
			// What is written is not in the bucket at once.
			w.faults(ossemu.Fault{Operation: "UploadPart", Kind: ossemu.FaultSlowFirstByte, Delay: 30 * time.Millisecond})
			d := w.mount()
			var editor sync.WaitGroup
			var met error
			chance := rand.New(rand.NewPCG(rng.Uint64(), 0))
			// What is closed may be lost, and then nothing is published.
			editor.Go(func() { met = e.until(w.path(w.files[0]), chance, round > 0) })
			until(func() bool { return e.acknowledged() > 0 })
			// The instant is what is random here.
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			w.faults(ossemu.Fault{Kind: ossemu.FaultReset})
			safe := e.acknowledged()
			image := disk.losePower()
			d.kill()
			editor.Wait()
			for unix.Unmount(w.at, unix.MNT_DETACH) == nil {
			}
			if met != nil {
				t.Error(met)
			}
			e.safe = safe
			inBucket := e.check(w.Get(e.base.Key))

			w.bootFrom(image, round)
			d = w.mount()
			d.flush()
			s := d.writing()
			lost := s.Suspects
			content, err := os.ReadFile(w.path(w.files[0]))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.check(content); err != nil {
				t.Errorf("after the loss of power: %v", err)
			}
			// What was closed after the last fsync and is lost has to be looked at first.
			if len(lost) == 0 && !bytes.Equal(content, w.Get(e.base.Key)) {
				t.Error("the bucket has not what the mount shows")
			}
			if len(lost) == 0 {
				published++
			}
			if inBucket != nil {
				pending++
			}
			copies += w.Requests("UploadPartCopy")
			t.Logf("of %d edits %d were acknowledged, of which the bucket lacked some: %t; lost %v", len(e.edits), safe, inBucket != nil, lost)
			if len(s.Conflicts) > 0 {
				t.Errorf("what we had published was taken for somebody else's: %v", s.Conflicts)
			}
			d.kill()
		})
	}
	if pending == 0 {
		t.Error("the bucket had everything that was acknowledged at any loss of power: the test shows nothing")
	}
	if published == 0 {
		t.Error("nothing was published after any loss of power: the test shows nothing of that")
	}
	if copies == 0 {
		t.Error("nothing was copied inside the server: the object was fetched whole, and the test shows nothing")
	}
}
