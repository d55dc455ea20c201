package ossemu

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// counters count what the server does.
type counters struct {
	inFlight, maxInFlight atomic.Int64
	operations            [operations]operationCounter
	latency               latencyHistogram

	mu struct {
		sync.Mutex
		since time.Time
		cpu   float64
	}
}

// operationCounter counts one operation. Its lock is held for an addition.
type operationCounter struct {
	mu struct {
		sync.Mutex
		status  map[int]int64
		in, out int64
	}
}

func (c *counters) enter() {
	n := c.inFlight.Add(1)
	for {
		m := c.maxInFlight.Load()
		if n <= m || c.maxInFlight.CompareAndSwap(m, n) {
			return
		}
	}
}

// answered counts a request and the body that came with it.
func (c *counters) answered(op operation, status int, in int64) {
	o := &c.operations[op]
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.status == nil {
		o.mu.status = make(map[int]int64)
	}
	o.mu.status[status]++
	o.mu.in += in
}

// leave counts what was sent to a request that was counted before.
func (c *counters) leave(op operation, out int64) {
	o := &c.operations[op]
	o.mu.Lock()
	o.mu.out += out
	o.mu.Unlock()
	c.inFlight.Add(-1)
}

// injected remembers a latency that the shape asked for.
func (c *counters) injected(d time.Duration) { c.latency.add(d) }

// latencyHistogram counts latencies in buckets that grow by an eighth of a
// power of two, which is 9 %, from a microsecond.
type latencyHistogram [8 * 36]atomic.Int64

func (h *latencyHistogram) add(d time.Duration) {
	i := 0
	if d > time.Microsecond {
		i = int(8 * math.Log2(float64(d)/float64(time.Microsecond)))
	}
	h[min(i, len(h)-1)].Add(1)
}

// quantile returns the middle of the bucket in which a quantile lies, in
// seconds.
func (h *latencyHistogram) quantile(p float64) float64 {
	var total int64
	for i := range h {
		total += h[i].Load()
	}
	if total == 0 {
		return 0
	}
	rank := int64(math.Ceil(p * float64(total)))
	for i := range h {
		if rank -= h[i].Load(); rank <= 0 {
			return math.Exp2((float64(i)+0.5)/8) * 1e-6
		}
	}
	return 0
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	c := &s.counters
	st := Stats{
		Operations:         make(map[string]OperationStats),
		InFlight:           c.inFlight.Load(),
		MaxInFlight:        c.maxInFlight.Load(),
		InjectedLatencyP50: c.latency.quantile(0.5),
		InjectedLatencyP99: c.latency.quantile(0.99),
		Faults:             make(map[FaultKind]int64),
		RSSBytes:           residentBytes(),
	}
	c.mu.Lock()
	st.Since, st.CPUSeconds = c.mu.since, cpuSeconds()-c.mu.cpu
	c.mu.Unlock()
	for op := range c.operations {
		o := c.operations[op].stats()
		if o.Requests == 0 {
			continue
		}
		st.Operations[operation(op).String()] = o
		st.Requests += o.Requests
		st.BytesIn += o.BytesIn
		st.BytesOut += o.BytesOut
	}
	s.faults.injected.Range(func(k, n any) bool {
		st.Faults[k.(FaultKind)] = n.(*atomic.Int64).Load() //nolint:forcetypeassert // only faultSet.count stores
		return true
	})
	return st
}

func (c *operationCounter) stats() OperationStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := OperationStats{Status: make(map[int]int64), BytesIn: c.mu.in, BytesOut: c.mu.out}
	for status, n := range c.mu.status {
		o.Status[status] = n
		o.Requests += n
	}
	return o
}

// ResetStats begins counting anew. Requests in flight are counted when they
// are answered.
func (s *Server) ResetStats() {
	c := &s.counters
	for op := range c.operations {
		o := &c.operations[op]
		o.mu.Lock()
		o.mu.status, o.mu.in, o.mu.out = nil, 0, 0
		o.mu.Unlock()
	}
	for i := range c.latency {
		c.latency[i].Store(0)
	}
	c.maxInFlight.Store(c.inFlight.Load())
	s.faults.injected.Clear()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.since, c.mu.cpu = time.Now(), cpuSeconds()
}

// cpuSeconds is the processor time of the process.
func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// residentBytes is the memory of the process, 0 if the system does not tell.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
