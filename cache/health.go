package cache

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// diskHealth says what the SSD tier is used for.
type diskHealth int32

const (
	// diskOK: it is read and written.
	diskOK diskHealth = iota
	// diskDegraded: a write failed. It is read, and a probe is written now and then.
	diskDegraded
	// diskDown: reads fail, or do not return. It is left alone but for the probe.
	diskDown
)

// String returns the name that status shows.
func (h diskHealth) String() string {
	switch h {
	case diskOK:
		return "ok"
	case diskDegraded:
		return "degraded"
	default:
		return "down"
	}
}

const (
	// probeEvery is how often a disk that is not ok is tried.
	probeEvery = 2 * time.Second
	// probesNeeded is how many probes must succeed in a row before the disk counts
	// as ok again.
	probesNeeded = 2
	// readErrorsAllowed is how many reads may fail within readErrorWindow before the
	// disk counts as down. One failed read is one bad place.
	readErrorsAllowed = 3
	readErrorWindow   = time.Minute
	// hungAfter is how long an operation may take before the disk counts as down.
	hungAfter = 30 * time.Second
)

// health is the state machine of the disk. Whatever happens there costs speed
// only: what cannot be read is fetched, what cannot be written is dropped.
type health struct {
	log *slog.Logger
	now func() time.Duration

	state atomic.Int32
	// started holds when the operations began that are under way, 0 for a free slot.
	// Those that find none are not watched.
	started [64]atomic.Int64

	mu struct {
		sync.Mutex
		lastError  error
		lastTime   time.Time
		readErrors []time.Duration
		probes     int
		dead       bool
	}
}

// readable tells whether reads may use the disk.
func (h *health) readable() bool { return diskHealth(h.state.Load()) != diskDown }

// writable tells whether blocks may be written.
func (h *health) writable() bool { return diskHealth(h.state.Load()) == diskOK }

// begin notes that an operation begins and returns the slot to be passed to end.
func (h *health) begin() (slot int) {
	now := int64(h.now()) | 1
	for i := range h.started {
		if h.started[i].Load() == 0 && h.started[i].CompareAndSwap(0, now) {
			return i
		}
	}
	return len(h.started)
}

// end notes that an operation has ended.
func (h *health) end(slot int) {
	if slot < len(h.started) {
		h.started[slot].Store(0)
	}
}

// writeFailed notes that a write, or a sync, failed.
func (h *health) writeFailed(err error) { h.worse(diskDegraded, err) }

// readFailed notes that a read failed.
func (h *health) readFailed(err error) {
	h.mu.Lock()
	now := h.now()
	recent := h.mu.readErrors[:0]
	for _, t := range h.mu.readErrors {
		if now-t < readErrorWindow {
			recent = append(recent, t)
		}
	}
	h.mu.readErrors = append(recent, now)
	down := len(h.mu.readErrors) >= readErrorsAllowed
	h.noteLocked(err)
	h.mu.Unlock()
	if down {
		h.worse(diskDown, err)
	}
}

// indexFailed notes that the index is unusable, which no probe can heal.
func (h *health) indexFailed(err error) {
	h.mu.Lock()
	h.mu.dead = true
	h.mu.Unlock()
	h.worse(diskDown, err)
}

// worse changes the state if that is worse than it was.
func (h *health) worse(to diskHealth, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(err)
	h.mu.probes = 0
	if was := diskHealth(h.state.Load()); was < to {
		h.state.Store(int32(to))
		h.log.Warn("cache disk is worse than it was", "state", to.String(), "was", was.String(), "error", err)
	}
}

func (h *health) noteLocked(err error) {
	h.mu.lastError, h.mu.lastTime = err, time.Now()
}

// check looks for operations that do not return.
func (h *health) check() {
	now := h.now()
	for i := range h.started {
		if t := h.started[i].Load(); t != 0 && now-time.Duration(t) > hungAfter {
			h.worse(diskDown, errHung)
			return
		}
	}
}

// errHung is the error of a disk whose operations do not return.
var errHung = errors.New("disk operation does not return")

// needsProbe tells whether the disk should be tried.
func (h *health) needsProbe() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return diskHealth(h.state.Load()) != diskOK && !h.mu.dead
}

// probed notes how a trial ended.
func (h *health) probed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.noteLocked(err)
		h.mu.probes = 0
		return
	}
	h.mu.probes++
	if h.mu.probes < probesNeeded || h.mu.dead {
		return
	}
	h.mu.readErrors = nil
	was := diskHealth(h.state.Swap(int32(diskOK)))
	h.log.Info("cache disk is ok again", "was", was.String())
}

// report returns the state, and the last error with its time.
func (h *health) report() (state diskHealth, lastError string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state = diskHealth(h.state.Load())
	if h.mu.lastError != nil {
		lastError, at = h.mu.lastError.Error(), h.mu.lastTime
	}
	return state, lastError, at
}

// noSpace tells whether an error says that the disk is full.
func noSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
