package cache

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// Buffers lie outside the Go heap: the collector neither scans them nor lets them
// pile up to twice their size. They come in classes, four to each doubling, so
// that at most a fifth of a buffer is unused.
const (
	smallestBuffer = content.PageSize
	largestBuffer  = content.SegmentSize
	// hugePage is what the processor maps at once if the kernel lets it.
	hugePage = 2 << 20
	// regionSize is what is asked of the kernel at once.
	regionSize = 4 * largestBuffer
)

// buffer is memory of one class. The zero value is no buffer.
type buffer struct {
	bytes  []byte
	region *region
}

// size returns what the buffer costs.
func (b buffer) size() int64 { return int64(len(b.bytes)) }

// region is memory of the kernel that is cut into buffers of one class.
type region struct {
	memory []byte
	class  int
	live   int
	// warm and cold are the free buffers, by number: warm ones have pages behind
	// them, cold ones have none yet or no longer.
	warm, cold []int
}

// bufferPool hands out buffers. It keeps free ones warm, since touching new
// memory costs more than filling old, but only as long as those and the ones in
// use together stay within the limit, and somebody takes them now and then.
type bufferPool struct {
	limit int64
	mu    struct {
		sync.Mutex
		live, warm int64 // bytes
		regions    [][]*region
		// idle is how many of the warm buffers of each class nobody has taken since it was
		// looked at: the fewest that there were.
		idle []int
	}
}

func newBufferPool(limit int64) *bufferPool {
	p := &bufferPool{limit: limit}
	p.mu.regions = make([][]*region, bufferClass(largestBuffer)+1)
	p.mu.idle = make([]int, len(p.mu.regions))
	return p
}

// bufferClass returns the smallest class that holds n bytes.
func bufferClass(n int64) int {
	if n <= smallestBuffer {
		return 0
	}
	// Within a doubling the classes are 5/4, 6/4, 7/4 and 8/4 of its lower end,
	// rounded up to pages. Some of the first ones are equal: the last is taken.
	shift := bits.Len64(uint64(n-1)) - 1
	quarter := int64(1) << shift / 4
	class := (shift-12)*4 + int((n-(1<<shift)+quarter-1)/quarter)
	for class < 8 && bufferSize(class+1) == bufferSize(class) {
		class++
	}
	return class
}

// bufferSize returns the size of a class.
func bufferSize(class int) int64 {
	if class == 0 {
		return smallestBuffer
	}
	lower := int64(smallestBuffer) << ((class - 1) / 4)
	n := lower + int64((class-1)%4+1)*(lower/4)
	return (n + content.PageSize - 1) &^ (content.PageSize - 1)
}

// bufferCost returns what a buffer for n bytes costs the budget.
func bufferCost(n int64) int64 { return bufferSize(bufferClass(n)) }

// get returns a buffer for n bytes, whose cost the caller has taken from the
// budget.
func (p *bufferPool) get(n int64) (buffer, error) {
	class := bufferClass(n)
	size := bufferSize(class)

	p.mu.Lock()
	defer p.mu.Unlock()
	var free *region
	for _, r := range p.mu.regions[class] {
		if len(r.warm) > 0 {
			free = r
			break
		}
		if len(r.cold) > 0 && free == nil {
			free = r
		}
	}
	if free != nil && len(free.warm) > 0 {
		last := len(free.warm) - 1
		number := free.warm[last]
		free.warm = free.warm[:last]
		p.mu.warm -= size
		p.mu.idle[class] = min(p.mu.idle[class], p.warmLocked(class))
		return p.takeLocked(free, number), nil
	}
	if p.mu.live+p.mu.warm+size > p.limit {
		p.trimLocked()
	}
	if free == nil {
		r, err := newRegion(class)
		if err != nil {
			return buffer{}, err
		}
		p.mu.regions[class] = append(p.mu.regions[class], r)
		free = r
	}
	last := len(free.cold) - 1
	number := free.cold[last]
	free.cold = free.cold[:last]
	return p.takeLocked(free, number), nil
}

func (p *bufferPool) takeLocked(r *region, number int) buffer {
	size := bufferSize(r.class)
	r.live++
	p.mu.live += size
	from := int64(number) * size
	return buffer{bytes: r.memory[from : from+size : from+size], region: r}
}

// put takes a buffer back.
func (p *bufferPool) put(b buffer) {
	r, size := b.region, b.size()
	offset := uintptr(unsafe.Pointer(&b.bytes[0])) - uintptr(unsafe.Pointer(&r.memory[0]))
	p.mu.Lock()
	defer p.mu.Unlock()
	r.live--
	r.warm = append(r.warm, int(int64(offset)/size))
	p.mu.live -= size
	p.mu.warm += size
}

// trimLocked gives the pages of all free buffers back to the kernel, and regions
// that nobody uses altogether.
func (p *bufferPool) trimLocked() {
	for class := range p.mu.regions {
		p.coolLocked(class, math.MaxInt)
	}
}

// coolIdle gives back the pages of the free buffers that nobody has taken since it was called
// last.
func (p *bufferPool) coolIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class := range p.mu.regions {
		p.coolLocked(class, p.mu.idle[class])
		p.mu.idle[class] = p.warmLocked(class)
	}
}

// warmLocked returns how many buffers of a class are warm.
func (p *bufferPool) warmLocked(class int) (n int) {
	for _, r := range p.mu.regions[class] {
		n += len(r.warm)
	}
	return n
}

// coolLocked gives the pages of that many warm buffers of a class back to the kernel, those first
// that would be taken last, and regions that nobody uses altogether.
func (p *bufferPool) coolLocked(class, most int) {
	size := bufferSize(class)
	regions := p.mu.regions[class]
	for _, r := range slices.Backward(regions) {
		cooled := min(len(r.warm), most)
		most -= cooled
		p.mu.warm -= int64(cooled) * size
		if r.live == 0 && cooled == len(r.warm) {
			_ = unix.Munmap(r.memory) // fails for what was not mapped only
			r.memory = nil
			continue
		}
		for _, number := range r.warm[:cooled] {
			from := int64(number) * size
			_ = unix.Madvise(r.memory[from:from+size], unix.MADV_DONTNEED)
		}
		r.cold = append(r.cold, r.warm[:cooled]...)
		r.warm = slices.Delete(r.warm, 0, cooled)
	}
	p.mu.regions[class] = slices.DeleteFunc(regions, func(r *region) bool { return r.memory == nil })
	p.mu.idle[class] = min(p.mu.idle[class], p.warmLocked(class))
}

// close gives all memory back and returns how many bytes somebody still uses;
// their regions stay mapped, for a read of unmapped memory would be the end.
func (p *bufferPool) close() (leaked int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimLocked()
	return p.mu.live
}

// newRegion asks the kernel for memory to be cut into buffers of class.
func newRegion(class int) (*region, error) {
	size := bufferSize(class)
	count := int(regionSize / size)
	memory, err := unix.Mmap(-1, 0, count*int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for buffers: %w", count*int(size), err)
	}
	// A huge page that two buffers share would hold memory that nobody counts. Both
	// are advice: kernels without huge pages refuse it.
	advice := unix.MADV_NOHUGEPAGE
	if size%hugePage == 0 {
		advice = unix.MADV_HUGEPAGE
	}
	_ = unix.Madvise(memory, advice)

	r := &region{memory: memory, class: class, cold: make([]int, count)}
	for i := range r.cold {
		r.cold[i] = count - 1 - i
	}
	return r, nil
}
