package cache

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// rounds returns how often a hard test is repeated: the default, or as many times
// as PAILFS_TEST_EFFORT says.
func rounds(n int) int {
	if effort, err := strconv.Atoi(os.Getenv("PAILFS_TEST_EFFORT")); err == nil && effort > 0 {
		return n * effort
	}
	return n
}

// crashObjects are what the crash tests read: small ones, large ones, and a few
// whose last block is short.
func crashObjects(s *fakeStore) (objects []oss.Object) {
	for i, size := range []int{1, 5000, 70_000, 115_000, 115_000, 300_001, content.SmallObject, 1<<20 + 1, 3 << 20, 9<<20 + 77, 17 << 20} {
		objects = append(objects, s.put(fmt.Sprint("object", i), size))
	}
	return objects
}

// TestLossOfPowerLosesNothingThatIsIndexed writes, indexes, and then undoes what
// was not synced. Whatever the index says must be there, without being fetched
// again: that is what indexed ⊆ synced means. The rest must be fetched.
func TestLossOfPowerLosesNothingThatIsIndexed(t *testing.T) {
	for round := range rounds(12) {
		seed := uint64(round) + 1
		rng := rand.New(rand.NewPCG(seed, seed))
		s, dir := newFakeStore(), t.TempDir()
		objects := crashObjects(s)
		c, disk := openFaulty(t, s, Config{Dir: dir, Size: 64 << 20})
		for range 5 + rng.IntN(40) {
			obj := objects[rng.IntN(len(objects))]
			h, err := c.Open(obj)
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, s, h, rng.Int64N(obj.Size), 1+rng.IntN(2<<20))
			_ = h.Close()
			switch rng.IntN(8) {
			case 0:
				_ = c.ssd.indexer.commit()
			case 1:
				c.MakeRoom(1 << 20)
			case 2:
				c.Release(obj)
			}
		}
		if round == 0 {
			flush(t, c) // so that one round at least has something to lose
		}
		c.crash(t)
		disk.losePower(rng)

		c, _ = openFaulty(t, s, Config{Dir: dir, Size: 64 << 20})
		s.resetRequests()
		indexed := 0
		for _, obj := range objects {
			h := openObject(t, c, obj)
			there := blocksOnDisk(c, h.object)
			indexed += len(there)
			for off := int64(0); off < obj.Size; off += content.BlockSize {
				checkRead(t, s, h, off, content.BlockSize)
			}
			for _, off := range there {
				if s.wasAsked(obj, off) {
					t.Errorf("seed %d: %s at %d was indexed and had to be fetched", seed, obj.Key, off)
				}
			}
			_ = h.Close()
		}
		if n := c.Stats().SSD.Damaged; n != 0 {
			t.Errorf("seed %d: %d things were damaged: the index said more than was synced", seed, n)
		}
		if round == 0 && indexed == 0 {
			t.Error("nothing was indexed: the test shows nothing")
		}
		closeCache(t, c)
	}
}

// blocksOnDisk returns the offsets of the blocks that can be read from SSD.
func blocksOnDisk(c *Cache, o *object) (offsets []int64) {
	c.ssd.load(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, seg := range o.mu.segments {
		for b := range o.geometry.Blocks(i) {
			if seg != nil && seg.disk.Has(b) && (!o.small() || o.mu.disk.whole()) {
				offsets = append(offsets, o.geometry.Offset(content.Span{Segment: i, First: b, End: b + 1}))
			}
		}
	}
	return offsets
}

const childDir = "PAILFS_CACHE_TEST_CHILD"

// TestChildReadsUntilKilled is not a test: it is what TestKilledAnyTime kills.
func TestChildReadsUntilKilled(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s := newFakeStore()
	objects := crashObjects(s)
	c, err := Open(Config{Dir: dir, Memory: 128 << 20, MinFreeBytes: 1, MinFreeInodes: 1}, s, s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(g)))
			for {
				obj := objects[rng.IntN(len(objects))]
				h, err := c.Open(obj)
				if err != nil {
					t.Error(err)
					return
				}
				if err := compareRead(s, h, rng.Int64N(obj.Size), 1+rng.IntN(1<<20)); err != nil {
					fmt.Println("wrong:", err)
				}
				_ = h.Close()
				switch rng.IntN(30) {
				case 0:
					_ = c.ssd.indexer.commit()
				case 1:
					c.MakeRoom(1 << 20)
				case 2:
					if err := c.Fetch(context.Background(), obj); err == nil && c.ssd.indexer.commit() == nil && c.Residency(obj).Whole {
						// The index knows it now: no kill takes it away. Unless it is evicted,
						// which the reader of this line must know.
						fmt.Println("whole", obj.Key)
					}
				}
			}
		})
	}
	group.Wait()
}

func TestKilledAnyTime(t *testing.T) {
	if testing.Short() {
		return
	}
	dir := t.TempDir()
	s := newFakeStore()
	objects := crashObjects(s)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	whole := 0
	// Chance decides what is whole when it is killed: it goes on until something was, and
	// kills what says so at once then.
	for round := 0; round < rounds(6) || whole == 0 && round < 100; round++ {
		child := exec.Command(os.Args[0], "-test.run=^TestChildReadsUntilKilled$", "-test.v")
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "ready" {
		}
		after := time.Duration(20+rng.IntN(400)) * time.Millisecond
		if round >= rounds(6) {
			after = time.Minute
		}
		kill := time.AfterFunc(after, func() { _ = child.Process.Kill() })
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "wrong") {
				t.Error(lines.Text())
			}
			if round >= rounds(6) && strings.HasPrefix(lines.Text(), "whole") {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		kill.Stop()

		c := openCache(t, s, Config{Dir: dir})
		for _, obj := range objects {
			s.resetRequests()
			r := c.Residency(obj)
			h := openObject(t, c, obj)
			for off := int64(0); off < obj.Size; off += 300_000 {
				checkRead(t, s, h, off, 300_000)
			}
			if n := s.requests(); r.Whole && n != 0 {
				t.Errorf("%d requests for %s, which was whole", n, obj.Key)
			} else if r.Whole {
				whole++
			}
			_ = h.Close()
		}
		if n := c.Stats().SSD.Damaged; n != 0 {
			t.Errorf("%d things were damaged", n)
		}
		closeCache(t, c)
	}
	if whole == 0 {
		t.Error("nothing was ever whole after a kill: the test shows nothing")
	}
}
