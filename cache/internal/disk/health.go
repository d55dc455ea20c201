package disk

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// State says what the SSD tier is used for.
type State int32

// What an SSD may be used for.
const (
	OK       State = iota // it is read and written
	Degraded              // a write failed: it is read, and a probe is written now and then
	Down                  // reads fail, or do not return: it is left alone but for the probe
)

// String returns the name that status shows.
func (h State) String() string {
	switch h {
	case OK:
		return "ok"
	case Degraded:
		return "degraded"
	default:
		return "down"
	}
}

const (
	// ProbeEvery is how often a disk that is not ok is tried.
	ProbeEvery = 2 * time.Second
	// probesNeeded is how many probes must succeed in a row before the disk counts
	// as ok again.
	probesNeeded = 2
	// readErrorsAllowed is how many reads may fail within readErrorWindow before the
	// disk counts as down. One failed read is one bad place.
	readErrorsAllowed = 3
	readErrorWindow   = time.Minute
	// HungAfter is how long an operation may take before the disk counts as down.
	HungAfter = 30 * time.Second
)

// Health is the state machine of the disk. Whatever happens there costs speed
// only: what cannot be read is fetched, what cannot be written is dropped.
type Health struct {
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

// NewHealth returns the state of a disk that is ok, which tells the time by now.
func NewHealth(log *slog.Logger, now func() time.Duration) *Health {
	return &Health{log: log, now: now}
}

// Current returns the state.
func (h *Health) Current() State { return State(h.state.Load()) }

// Readable tells whether reads may use the disk.
func (h *Health) Readable() bool { return h.Current() != Down }

// Writable tells whether blocks may be written.
func (h *Health) Writable() bool { return h.Current() == OK }

// Begin notes that an operation begins and returns the slot to be passed to end.
func (h *Health) Begin() (slot int) {
	now := int64(h.now()) | 1
	for i := range h.started {
		if h.started[i].Load() == 0 && h.started[i].CompareAndSwap(0, now) {
			return i
		}
	}
	return len(h.started)
}

// End notes that an operation has ended.
func (h *Health) End(slot int) {
	if slot < len(h.started) {
		h.started[slot].Store(0)
	}
}

// WriteFailed notes that a write, or a sync, failed.
func (h *Health) WriteFailed(err error) { h.worse(Degraded, err) }

// ReadFailed notes that a read failed.
func (h *Health) ReadFailed(err error) {
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
		h.worse(Down, err)
	}
}

// IndexFailed notes that the index is unusable, which no probe can heal.
func (h *Health) IndexFailed(err error) {
	h.mu.Lock()
	h.mu.dead = true
	h.mu.Unlock()
	h.worse(Down, err)
}

// worse changes the state if that is worse than it was.
func (h *Health) worse(to State, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(err)
	h.mu.probes = 0
	if was := State(h.state.Load()); was < to {
		h.state.Store(int32(to))
		h.log.Warn("cache disk is worse than it was", "state", to.String(), "was", was.String(), "error", err)
	}
}

func (h *Health) noteLocked(err error) {
	h.mu.lastError, h.mu.lastTime = err, time.Now()
}

// Backdate makes what is under way have begun earlier by that.
func (h *Health) Backdate(by time.Duration) {
	for i := range h.started {
		if slot := &h.started[i]; slot.Load() != 0 {
			slot.Add(-int64(by))
		}
	}
}

// Check looks for operations that do not return.
func (h *Health) Check() {
	now := h.now()
	for i := range h.started {
		if t := h.started[i].Load(); t != 0 && now-time.Duration(t) > HungAfter {
			h.worse(Down, errHung)
			return
		}
	}
}

// errHung is the error of a disk whose operations do not return.
var errHung = errors.New("disk operation does not return")

// NeedsProbe tells whether the disk should be tried.
func (h *Health) NeedsProbe() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return State(h.state.Load()) != OK && !h.mu.dead
}

// Probed notes how a trial ended.
func (h *Health) Probed(err error) {
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
	was := State(h.state.Swap(int32(OK)))
	h.log.Info("cache disk is ok again", "was", was.String())
}

// Report returns the state, and the last error with its time.
func (h *Health) Report() (state State, lastError string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state = State(h.state.Load())
	if h.mu.lastError != nil {
		lastError, at = h.mu.lastError.Error(), h.mu.lastTime
	}
	return state, lastError, at
}

// NoSpace tells whether an error says that the disk is full.
func NoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Shortage tells whether an error says that this process, or the kernel, has too
// few of something, which is not the disk's fault.
func Shortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}
