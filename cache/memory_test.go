package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
)

func TestBudgetIsNeverExceeded(t *testing.T) {
	const limit, reserve = 1000, 200
	b := newBudget(limit, reserve)
	var used atomic.Int64
	var group sync.WaitGroup
	for g := range 16 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range 3000 {
				u := urgency(rng.IntN(2))
				n := 1 + rng.Int64N(300)
				switch rng.IntN(3) {
				case 0:
					if !b.try(n, u) {
						continue
					}
				case 1:
					if err := b.acquire(context.Background(), n, u); err != nil {
						t.Error(err)
						return
					}
				default:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(50))*time.Microsecond)
					err := b.acquire(ctx, n, u)
					cancel()
					if err != nil {
						continue
					}
				}
				if now := used.Add(n); now > limit {
					t.Errorf("%d of %d are in use", now, limit)
				}
				if rng.IntN(4) == 0 {
					time.Sleep(time.Microsecond)
				}
				used.Add(-n)
				b.release(n)
			}
		})
	}
	group.Wait()
	if n := b.inUse(); n != 0 {
		t.Errorf("%d are in use at the end", n)
	}
	if u, p := b.wanted(); u+p != 0 {
		t.Errorf("%d and %d are wanted at the end", u, p)
	}
}

func TestPatientRequestsLeaveTheReserve(t *testing.T) {
	b := newBudget(1000, 200)
	if b.try(801, patient) || !b.try(800, patient) || b.try(1, patient) {
		t.Error("patient requests take the reserve")
	}
	if !b.try(200, urgent) || b.try(1, urgent) {
		t.Error("urgent requests do not get the reserve")
	}
	if err := b.acquire(context.Background(), 1001, urgent); err == nil {
		t.Error("more than there is was not refused")
	}
	if err := b.acquire(context.Background(), 801, patient); err == nil {
		t.Error("more than there is for patient requests was not refused")
	}
}

func TestUrgentRequestsGoFirstAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1000, 200)
		if !b.try(1000, urgent) {
			t.Fatal("not empty")
		}
		var order []string
		var mu sync.Mutex
		wait := func(name string, n int64, u urgency) {
			go func() {
				if err := b.acquire(context.Background(), n, u); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		wait("patient", 100, patient)
		wait("large", 500, urgent)
		wait("small", 10, urgent)
		if b.try(1, urgent) {
			t.Error("somebody overtook those who wait")
		}
		for range 10 {
			b.release(100)
			synctest.Wait()
		}
		if got := fmt.Sprint(order); got != "[large small patient]" {
			t.Errorf("served in the order %s", got)
		}
		b.release(610)
	})
}

func TestBufferClassesHoldWhatTheyShould(t *testing.T) {
	for n := int64(1); n <= largestBuffer; n += 1 + n/1000 {
		class := bufferClass(n)
		size := bufferSize(class)
		if size < n || size%content.PageSize != 0 || size > max(n+n/4+content.PageSize, smallestBuffer) {
			t.Fatalf("%d bytes get a buffer of %d", n, size)
		}
		if bufferClass(size) != class {
			t.Fatalf("a buffer of %d bytes is of class %d, not %d", size, bufferClass(size), class)
		}
	}
	if bufferSize(bufferClass(largestBuffer)) != largestBuffer {
		t.Error("a segment does not fill its buffer")
	}
}

func TestBuffersDoNotOverlapAndStayWithinTheLimit(t *testing.T) {
	const limit = 64 << 20
	p := newBufferPool(limit)
	rng := rand.New(rand.NewPCG(1, 2))
	type held struct {
		buffer
		mark byte
	}
	var all []held
	var live int64
	for i := range 20_000 {
		n := min(1+rng.Int64N(1<<(10+rng.IntN(14))), largestBuffer)
		if live+bufferCost(n) <= limit && (rng.IntN(2) == 0 || len(all) == 0) {
			b, err := p.get(n)
			if err != nil {
				t.Fatal(err)
			}
			mark := byte(i)
			b.bytes[0], b.bytes[len(b.bytes)-1], b.bytes[len(b.bytes)/2] = mark, mark, mark
			all = append(all, held{b, mark})
			live += b.size()
		} else if len(all) > 0 {
			j := rng.IntN(len(all))
			b := all[j]
			if b.bytes[0] != b.mark || b.bytes[len(b.bytes)-1] != b.mark || b.bytes[len(b.bytes)/2] != b.mark {
				t.Fatal("a buffer was written by another")
			}
			live -= b.size()
			p.put(b.buffer)
			all[j] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		if i%500 == 0 {
			p.coolIdle()
		}
		if p.mu.live != live || p.mu.live+p.mu.warm > limit {
			t.Fatalf("%d live, counted %d; %d warm", live, p.mu.live, p.mu.warm)
		}
	}
	for _, b := range all {
		p.put(b.buffer)
	}
	if leaked := p.close(); leaked != 0 {
		t.Errorf("%d bytes leaked", leaked)
	}
}

func TestBuffersThatNobodyNeedsAreGivenBack(t *testing.T) {
	const size, many, few = 1 << 20, 32, 5
	p := newBufferPool(64 << 20)
	defer p.close()
	take := func(n int) {
		var all []buffer
		for range n {
			b, err := p.get(size)
			if err != nil {
				t.Fatal(err)
			}
			clear(b.bytes)
			all = append(all, b)
		}
		for _, b := range all {
			p.put(b)
		}
	}
	wantResident := func(when string, want int) {
		t.Helper()
		pages := 0
		for _, r := range p.mu.regions[bufferClass(size)] {
			pages += residentPages(t, r.memory)
		}
		if got := pages * os.Getpagesize(); got != want*size || p.mu.warm != int64(got) {
			t.Errorf("%s %d MiB are resident and %d counted, want %d", when, got>>20, p.mu.warm>>20, want)
		}
	}
	take(many)
	p.coolIdle() // they have just been needed
	wantResident("after a peak", many)
	take(few)
	take(few)
	p.coolIdle()
	wantResident("after fewer were needed", few)
	take(few)
	p.coolIdle()
	wantResident("as long as they are needed", few)
	p.coolIdle()
	wantResident("when none was needed", 0)
	if n := len(p.mu.regions[bufferClass(size)]); n != 0 {
		t.Errorf("%d regions are left", n)
	}
	take(many)
	wantResident("after another peak", many)
}

// residentPages returns how many pages of memory the kernel holds.
func residentPages(t *testing.T, memory []byte) (n int) {
	t.Helper()
	vector := make([]byte, len(memory)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)), uintptr(unsafe.Pointer(&vector[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, v := range vector {
		n += int(v & 1)
	}
	return n
}

// What readers needed at a peak is given back soon after, but for what is kept.
func TestMemoryThatNobodyNeedsIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		c, err := Open(Config{Memory: minMemory}, s, s, nil, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		defer closeCache(t, c)
		var all []buffer
		for range 24 {
			b, err := c.memory.pool.get(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		for _, b := range all {
			c.memory.pool.put(b)
		}
		time.Sleep(2*coolEvery + time.Second)
		c.memory.pool.mu.Lock()
		warm := c.memory.pool.mu.warm
		c.memory.pool.mu.Unlock()
		if warm != 0 {
			t.Errorf("%d MiB are held in vain", warm>>20)
		}
	})
}

// TestReadsAreServedWhileEverythingElseIsStuck fills the memory with what does not
// move, and reads.
func TestReadsAreServedWhileEverythingElseIsStuck(t *testing.T) {
	s := newFakeStore()
	drive := make(chan struct{})
	c, faults := openFaulty(t, s, Config{Dir: t.TempDir(), Memory: minMemory})
	faults.set(func() {
		faults.mu.writeErr = func(name string) error {
			if name != disk.ProbeName {
				<-drive
			}
			return errDiskFull
		}
	})
	// The disk takes nothing, and fetches want to write.
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer func() {
		close(drive)
		cancel()
		group.Wait()
	}()
	for i := range 6 {
		obj := s.put(fmt.Sprint("fetched", i), 30<<20)
		group.Go(func() { _ = c.Fetch(ctx, obj) })
	}
	// Streams have read ahead, and their readers pause.
	for i := range 4 {
		h := openObject(t, c, s.put(fmt.Sprint("stream", i), 30<<20))
		for off := int64(0); off < 3<<20; off += 1 << 20 {
			checkRead(t, s, h, off, 1<<20)
		}
	}
	// Files are open of which only the beginning was read.
	for i := range 40 {
		checkRead(t, s, openObject(t, c, s.put(fmt.Sprint("header", i), 900_000)), 0, 100)
	}
	for i := range 40 {
		h := openObject(t, c, s.put(fmt.Sprint("large", i), 10<<20))
		checkRead(t, s, h, 5<<20, 1<<20)
	}
}

// TestViewsThatAreHeldDoNotBlockReads holds as many views as a mount might.
func TestViewsThatAreHeldDoNotBlockReads(t *testing.T) {
	s := newPatternStore()
	c, err := Open(Config{Memory: minMemory}, s, s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeCache(t, c)
	h, err := c.Open(s.object("object", 64))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var group sync.WaitGroup
	for g := range 64 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 40 {
				off := rng.Int64N(h.Object().Size)
				v, err := h.View(context.Background(), off, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range v.Slices() {
					if p[0] != s.segment[off%content.SegmentSize] {
						t.Error("wrong bytes")
					}
					off += int64(len(p))
				}
				time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				v.Release()
			}
		})
	}
	group.Wait()
	if used := c.memory.budget.inUse(); used > minMemory {
		t.Errorf("%d bytes are in use", used)
	}
}

func TestDefaultMemoryFollowsTheControlGroup(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no group": {map[string]string{"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n"}, 2 << 30},
		"v2": {map[string]string{
			"proc/meminfo": "MemTotal: 16777216 kB\n", "proc/self/cgroup": "0::/kube/pod/x\n",
			"sys/fs/cgroup/kube/pod/x/memory.max": "max\n", "sys/fs/cgroup/kube/pod/memory.max": "4294967296\n", "sys/fs/cgroup/kube/memory.max": "8589934592\n",
		}, 512 << 20},
		"v2 in a container": {map[string]string{
			"proc/meminfo": "MemTotal: 16777216 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n",
		}, 256 << 20},
		"v1": {map[string]string{
			"proc/meminfo": "MemTotal: 16777216 kB\n", "proc/self/cgroup": "5:cpu:/a\n4:hugetlb,memory:/docker/y\n",
			"sys/fs/cgroup/memory/docker/y/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
		}, 128 << 20},
		"tiny":    {map[string]string{"proc/meminfo": "MemTotal: 100000 kB\n"}, minMemory},
		"huge":    {map[string]string{"proc/meminfo": "MemTotal: 1073741824 kB\n"}, maxDefaultMemory},
		"nothing": {nil, minMemory},
	} {
		root := t.TempDir()
		for path, content := range c.files {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := defaultMemory(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestSystemMemoryIsThatOfTheControlGroup(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		total, free int64
	}{
		"no group": {map[string]string{"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 600 kB\n"}, 1000 << 10, 600 << 10},
		"v2": {map[string]string{
			"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 600 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "409600\n", "sys/fs/cgroup/a/memory.current": "102400\n",
		}, 409600, 307200},
		"v1, all used": {map[string]string{
			"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 600 kB\n", "proc/self/cgroup": "4:memory:/y\n",
			"sys/fs/cgroup/memory/y/memory.limit_in_bytes": "204800\n", "sys/fs/cgroup/memory/y/memory.usage_in_bytes": "204900\n",
		}, 204800, 0},
		"nothing": {nil, 0, 0},
	} {
		root := t.TempDir()
		for path, content := range c.files {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if total, free := systemMemory(root); total != c.total || free != c.free {
			t.Errorf("%s: %d of %d are free, want %d of %d", name, free, total, c.free, c.total)
		}
	}
}
