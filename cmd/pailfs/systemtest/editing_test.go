package systemtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu"
)

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
			times := 12
			if round == 0 {
				times = math.MaxInt // what is closed may be lost, and then nothing is published
			}
			editor.Go(func() {
				for there := true; there && met == nil; {
					there, met = e.edit(w.path(w.files[0]), chance, times, false)
				}
			})
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
			inBucket := e.check(w.Get(e.base.Key), safe)

			w.bootFrom(image, round)
			d = w.mount()
			d.flush()
			s := d.writing()
			lost := s.Suspects
			content, err := os.ReadFile(w.path(w.files[0]))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.check(content, safe); err != nil {
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

// The daemon is killed while many programs edit large objects, a few each. Whatever fsync or
// close had accepted is in the bucket once the next mount has drained, and beside that only
// bytes that were there before or that were written.
func TestAcknowledgedEditsOfManyLargeObjectsOutliveAKill(t *testing.T) {
	const editors, each = 8, 3
	rng := newRandom(t)
	pending := 0
	for round := range rounds(t, 2) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			w := newWorld(t)
			w.cache = newDisk(t, "ext4", 1024).cache
			var all []*edited
			for _, f := range w.add("large", someSizes(rng, editors*each, 8<<20, 12<<20)...) {
				all = append(all, &edited{base: f.Versions[0]})
			}
			w.faults(ossemu.Fault{Operation: "UploadPart", Kind: ossemu.FaultSlowFirstByte, Delay: 30 * time.Millisecond})
			d := w.mount()
			var running sync.WaitGroup
			met := make([]error, editors)
			for i := range editors {
				chance := rand.New(rand.NewPCG(rng.Uint64(), 0))
				running.Go(func() {
					for there := true; there && met[i] == nil; {
						e := all[i*each+chance.IntN(each)]
						there, met[i] = e.edit(filepath.Join(w.at, e.base.Key), chance, 1+chance.IntN(4), true)
					}
				})
			}
			until(func() bool { return all[0].acknowledged()+all[1].acknowledged()+all[2].acknowledged() > 0 })
			// The instant is what is random here.
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			resident := d.resident()
			d.kill()
			running.Wait()
			for unix.Unmount(w.at, unix.MNT_DETACH) == nil {
			}
			if err := errors.Join(met...); err != nil {
				t.Error(err)
			}
			lacked, edits := 0, 0
			for _, e := range all {
				edits += len(e.edits)
				if e.check(w.Get(e.base.Key), e.safe) != nil {
					lacked++
				}
			}
			if lacked > 0 {
				pending++
			}

			w.faults()
			d = w.mount()
			d.flush()
			for _, e := range all {
				if err := e.check(w.Get(e.base.Key), e.safe); err != nil {
					t.Errorf("after the kill: %v", err)
				}
			}
			if s := d.writing(); len(s.Suspects)+len(s.Conflicts) > 0 {
				t.Errorf("suspects %v, conflicts %v", s.Suspects, s.Conflicts)
			}
			t.Logf("%d edits of %d objects, of %d of which the bucket lacked some; the daemon had %d MiB, and %d MiB afterwards",
				edits, len(all), lacked, resident>>20, d.resident()>>20)
			d.stop()
		})
	}
	if pending == 0 {
		t.Error("the bucket had everything that was acknowledged at any kill: the test shows nothing")
	}
}
