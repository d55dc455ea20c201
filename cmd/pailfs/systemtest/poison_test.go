package systemtest

import (
	"os"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// Damaged content that is found out only after some of it was read, and by no
// reader, must be gone from the kernel's memory when the file is opened again.
func TestKernelForgetsDamagedPages(t *testing.T) {
	w := newWorld(t)
	f := w.add("big", 30<<20)[0]
	v := f.Versions[0]
	d := w.mount()
	w.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultCorrupt, Count: 1})
	o, err := os.Open(w.path(f))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	const early = 8 << 20
	p := make([]byte, 64<<10)
	if _, err := o.ReadAt(p, early); err != nil {
		t.Fatal(err)
	}
	if v.wrong(p, early) < 0 {
		t.Fatal("the damage did not arrive")
	}
	// Reading stops when readahead has brought the last byte.
	for off := int64(0); off < v.Size && d.status().Cache.Corrupted == 0; off += int64(len(p)) {
		if _, err := o.ReadAt(p, off); err != nil {
			t.Logf("the reader was told at %d: %v", off, err)
			break
		}
	}
	d.eventually("the damage is noticed", func() bool { return d.status().Cache.Corrupted > 0 })
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	d.verify("after the damage", w.files, sequential, whole)
}
