package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// Job is one object that is to be fetched.
type Job struct {
	Object oss.Object
	// Run fetches it and tells whoever wanted it. ctx ends with the scheduler.
	Run func(ctx context.Context)
}

// Source gives the next job, if it has one. It must not block.
type Source func() (Job, bool)

const (
	// leastWidth is how many objects are fetched at once though fewer requests would
	// do: objects of a few kilobytes are gone as soon as they came.
	leastWidth = 32
	// widthRoom is how many bytes of one object are on their way at most, which the
	// cache decides.
	widthRoom = 64 << 20
	// lookEvery is how often the width is looked at while nothing else happens.
	lookEvery = 100 * time.Millisecond
)

// Scheduler keeps jobs on their way: by Little's law, as many as the rate at which
// the object store answers times its latency. The limiter of requests finds that
// number by trying; the scheduler keeps twice as many objects at hand, so that the
// limiter is never idle between two of them. Objects in flight are bounded by
// bytes as well.
//
// The sources come in the order of their urgency. A job counts against the width
// of its source and of those after it, so the urgent never wait for the others.
type Scheduler struct {
	width   func() int
	room    func() int64
	sources []Source
	woken   chan struct{}
	workers sync.WaitGroup

	mu struct {
		sync.Mutex
		// inFlight and bytes count the jobs of each source.
		inFlight []int
		bytes    []int64
	}
}

// New returns a scheduler of sources in the order of their urgency, which keeps twice as many
// jobs on their way as width says, and no more bytes than room says.
func New(width func() int, room func() int64, sources ...Source) *Scheduler {
	s := &Scheduler{width: width, room: room, sources: sources, woken: make(chan struct{}, 1)}
	s.mu.inFlight = make([]int, len(sources))
	s.mu.bytes = make([]int64, len(sources))
	return s
}

// Wake says that a source may have something.
func (s *Scheduler) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Run starts jobs until ctx ends, and returns when the last has ended.
func (s *Scheduler) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.fill(ctx)
		select {
		case <-ctx.Done():
		case <-s.woken:
		case <-tick.C:
		}
	}
	s.workers.Wait()
}

// fill starts what may be started.
func (s *Scheduler) fill(ctx context.Context) {
	width, room := s.width(), s.room()
	if width == 0 {
		return
	}
	width = max(leastWidth, 2*width)
	for i, next := range s.sources {
		for s.mayStart(i, width, room) {
			j, ok := next()
			if !ok {
				break
			}
			s.start(ctx, i, j)
		}
	}
}

// mayStart tells whether source i may start one more.
func (s *Scheduler) mayStart(i, width int, room int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs, bytes := 0, int64(0)
	for k := range i + 1 {
		jobs += s.mu.inFlight[k]
		bytes += s.mu.bytes[k]
	}
	return jobs < width && (jobs == 0 || bytes < room)
}

func (s *Scheduler) start(ctx context.Context, i int, j Job) {
	cost := min(j.Object.Size, widthRoom)
	s.mu.Lock()
	s.mu.inFlight[i]++
	s.mu.bytes[i] += cost
	s.mu.Unlock()
	s.workers.Go(func() {
		j.Run(ctx)
		s.mu.Lock()
		s.mu.inFlight[i]--
		s.mu.bytes[i] -= cost
		s.mu.Unlock()
		s.Wake()
	})
}

// InFlight returns how many objects are on their way.
func (s *Scheduler) InFlight() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.mu.inFlight {
		n += k
	}
	return n
}
