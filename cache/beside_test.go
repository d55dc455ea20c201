package cache

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
)

// fillOnce makes the first write to an object file end in err, once another write of it
// has begun, which goes on when the first has been told.
func fillOnce(c *Cache, drive *faultFS, err error) {
	var writes atomic.Int32
	second := make(chan struct{})
	announce := sync.OnceFunc(func() { close(second) })
	dropped := c.Stats().SSD.DroppedWrites
	drive.set(func() {
		drive.mu.writeErr = func(name string) error {
			if !strings.HasPrefix(name, disk.ObjectsName) {
				return nil
			}
			if writes.Add(1) == 1 {
				<-second
				return err
			}
			announce()
			for c.Stats().SSD.DroppedWrites == dropped {
				time.Sleep(time.Millisecond) // the first has yet to be told
			}
			return nil
		}
	})
}

// Two parts of one object are written at once. The disk refuses the first, for a
// moment, and takes the second: that is there.
func testWrittenBesideAFailure(t *testing.T, fault error) {
	s := newFakeStore()
	c, disk := openFaulty(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 8<<20)
	fillOnce(c, disk, fault)
	h := openObject(t, c, obj)
	var readers sync.WaitGroup
	for _, off := range []int64{1 << 20, 5 << 20} {
		readers.Go(func() {
			if err := compareRead(s, h, off, content.BlockSize); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	waitUntil(t, "one part was refused and the other one written", func() bool {
		return settled(c) && c.Stats().SSD.DroppedWrites > 0 && c.Residency(obj).SSD > 0
	})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	o := c.objects.find(content.Identify(c.bucket, obj))
	c.dropKept(o) // memory must not have it
	o.release()
	disk.set(func() { disk.mu.writeErr = nil })

	s.resetRequests()
	h = openObject(t, c, obj)
	checkRead(t, s, h, 1<<20, content.BlockSize)
	checkRead(t, s, h, 5<<20, content.BlockSize)
	if s.wasAsked(obj, 1<<20) && s.wasAsked(obj, 5<<20) {
		t.Error("what was written beside a failure was fetched again")
	}
	flush(t, c)
	checkRead(t, s, h, 0, 8<<20)
}

func TestWhatIsWrittenBesideAFullDiskIsRead(t *testing.T) {
	testWrittenBesideAFailure(t, unix.ENOSPC)
}

func TestWhatIsWrittenBesideAFailedWriteIsRead(t *testing.T) {
	testWrittenBesideAFailure(t, unix.EIO)
}
