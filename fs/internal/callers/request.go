package callers

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// DyingPoll is how often a caller that was interrupted is looked at again: the
// kernel tells of the first signal only, and that may not be the one that kills.
const DyingPoll = 100 * time.Millisecond

// Request is the context of one request of the kernel. It ends when the caller
// is being killed, and at no other signal: programs do not expect EINTR from stat
// nor from reading a file, and a page fault that ends with it is a SIGBUS.
//
// The kernel says INTERRUPT for every signal. Whether one kills is read from
// /proc, so a caller in another PID namespace, whose id we are not given, is
// waited for.
type Request struct {
	caller fuse.Caller
	cancel <-chan struct{}
	gone   func() bool // nil, or whether the mount is gone
	mu     struct {
		sync.Mutex
		done  chan struct{} // made by the first call of Done
		stop  chan struct{} // ends the watcher; made together with done
		ended bool
	}
}

var _ context.Context = (*Request)(nil)

// NewRequest returns the context of a request; End must be called.
func NewRequest(caller *fuse.Caller, cancel <-chan struct{}) *Request {
	return &Request{caller: *caller, cancel: cancel}
}

// EndsWith makes the context end as well when the mount is gone, which gone reports: the kernel has
// answered the caller then, who lives on. It is to be called before Done and Err, for what would
// wait without a bound.
func (r *Request) EndsWith(gone func() bool) { r.gone = gone }

// Deadline implements [context.Context].
func (r *Request) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context].
func (r *Request) Value(any) any { return nil }

// Done implements [context.Context]. Only the first call costs anything, so a
// request that is answered at once pays nothing for being interruptible.
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.done == nil {
		r.mu.done, r.mu.stop = make(chan struct{}), make(chan struct{})
		if r.mu.ended {
			close(r.mu.done)
		} else {
			go r.watch(r.mu.done, r.mu.stop)
		}
	}
	return r.mu.done
}

// Err implements [context.Context].
func (r *Request) Err() error {
	select {
	case <-r.cancel:
	default:
		return nil
	}
	select {
	case <-r.Done():
		return context.Canceled
	default:
		return nil
	}
}

// End says that the request has been answered.
func (r *Request) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.ended && r.mu.stop != nil {
		close(r.mu.stop)
	}
	r.mu.ended = true
}

// watch closes done when the caller is being killed, or the mount is gone.
func (r *Request) watch(done, stop chan struct{}) {
	select {
	case <-stop:
		return
	case <-r.cancel:
	}
	tick := time.NewTicker(DyingPoll)
	defer tick.Stop()
	for !dying(r.caller.Pid) && (r.gone == nil || !r.gone()) {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
	close(done)
}

// dying reports whether SIGKILL is pending for the thread tid or it is gone. The
// kernel turns every deadly signal into SIGKILL for each thread.
func dying(tid uint32) bool {
	if tid == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return os.IsNotExist(err)
	}
	for _, field := range []string{"SigPnd:", "ShdPnd:"} {
		set, err := strconv.ParseUint(statusField(status, field), 16, 64)
		if err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

// ProcessOf returns the process that the thread tid belongs to and the supplementary
// groups of the thread, 0 and none if unknown. It reads a file of /proc, which takes longer
// than many a request.
func ProcessOf(tid uint32) (pid uint32, groups []uint32) {
	if tid == 0 {
		return 0, nil
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return 0, nil
	}
	process, err := strconv.ParseUint(statusField(status, "Tgid:"), 10, 32)
	if err != nil {
		return 0, nil
	}
	for word := range strings.FieldsSeq(statusField(status, "Groups:")) {
		if group, err := strconv.ParseUint(word, 10, 32); err == nil {
			groups = append(groups, uint32(group))
		}
	}
	return uint32(process), groups
}

// statusField returns the value of a line of /proc/PID/status.
func statusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
