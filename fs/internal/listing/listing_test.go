package listing

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// What is kept of closed directories is bounded; the kernel is told to forget what
// leads to what is not.
func TestCursorsOfClosedDirectoriesAreBounded(t *testing.T) {
	var k Cursors
	var dirs []*Directory
	read := func(d *Directory, entries int) {
		l, _ := d.Enter(time.Now())
		l.mu.cursors = make([]string, entries)
		d.Leave(l)
		k.Closed(d)
	}
	for range 40 {
		d := New("")
		dirs = append(dirs, d)
		read(d, cursorsMost/10)
		read(dirs[0], cursorsMost/10)
	}
	kept := 0
	for _, d := range dirs {
		kept += d.Cursors()
	}
	if kept > cursorsMost || kept < cursorsMost/2 {
		t.Errorf("%d cursors are kept, at most %d should", kept, cursorsMost)
	}
	if l, known := dirs[0].Enter(time.Now()); !known || l.Length() == 0 {
		t.Error("the directory that was closed last was dropped")
	}
	if _, known := dirs[1].Enter(time.Now()); known {
		t.Error("the kernel may go on from offsets that lead nowhere")
	}
	for _, d := range dirs {
		k.Forgotten(d)
	}
	if k.mu.total != 0 || k.mu.order.Len() != 0 || len(k.mu.at) != 0 {
		t.Errorf("left: %d in %d", k.mu.total, k.mu.order.Len())
	}
}

func TestOffsetsRoundTrip(t *testing.T) {
	for _, c := range []struct {
		number   uint64
		position int
	}{{1, 1}, {1, 2}, {lastNumber, 1<<positionBits - 1}, {12345, 678910}} {
		off := PackOffset(c.number, c.position)
		if int64(off) < 0 {
			t.Errorf("%v: offset %d is negative as loff_t", c, int64(off))
		}
		if n, p := unpackOffset(off); n != c.number || p != c.position {
			t.Errorf("%v: comes back as %d, %d", c, n, p)
		}
	}
	if off := PackOffset(9, 0); off != 0 {
		t.Errorf("the start of a directory is %d", off)
	}
}

func TestListingNumbersWrapAround(t *testing.T) {
	d := &Directory{}
	d.mu.number = lastNumber
	l, _ := d.Enter(time.Now())
	if l.Number != 1 {
		t.Errorf("after the last number comes %d", l.Number)
	}
	if keys := slices.Collect(maps.Keys(d.mu.others)); len(keys) != 0 {
		t.Errorf("others: %v", keys)
	}
}
