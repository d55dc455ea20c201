package audit

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	pailfs "github.com/pailfs/pailfs/fs"
)

const (
	// mostThreads is how many threads are remembered, each with a descriptor.
	mostThreads = 512
	// believed is for how long a process is taken to run what it ran: exec(2) changes that.
	believed = time.Second
	// pidfdThread is PIDFD_THREAD of pidfd_open(2): the thread, and not its process.
	pidfdThread = unix.O_EXCL
)

// processes remembers which process a thread belongs to, and what it is: to read that from /proc
// takes longer than most operations. A pidfd of the thread tells whether its number still means
// it, as its start time would, which is to be read from /proc.
type processes struct {
	mu struct {
		sync.Mutex
		threads map[uint32]thread
	}
}

// thread is a thread that made a request.
type thread struct {
	pidfd   int
	process *pailfs.Process
	read    time.Time
}

// alive reports whether the thread has not been waited for since.
func (t *thread) alive() bool {
	return !errors.Is(unix.PidfdSendSignal(t.pidfd, 0, nil, 0), unix.ESRCH)
}

// of returns the process of a thread that waits for an answer.
func (p *processes) of(tid uint32) *pailfs.Process {
	if tid == 0 {
		return &pailfs.Process{}
	}
	p.mu.Lock()
	t, ok := p.mu.threads[tid]
	if ok && time.Since(t.read) < believed && t.alive() {
		p.mu.Unlock()
		return t.process
	}
	p.mu.Unlock()
	fresh := thread{process: readProcess(tid), read: time.Now()}
	var err error
	// The thread waits for us: its number means it until then.
	if fresh.pidfd, err = unix.PidfdOpen(int(tid), pidfdThread); err != nil {
		return fresh.process // a kernel before 6.9; it is read each time
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.threads == nil {
		p.mu.threads = make(map[uint32]thread)
	}
	p.forget(tid)
	if len(p.mu.threads) >= mostThreads {
		p.makeRoom()
	}
	p.mu.threads[tid] = fresh
	return fresh.process
}

// forget closes what is known of a thread. mu is held.
func (p *processes) forget(tid uint32) {
	if t, ok := p.mu.threads[tid]; ok {
		_ = unix.Close(t.pidfd) // it was only asked
		delete(p.mu.threads, tid)
	}
}

// makeRoom forgets what is old, and one at least. mu is held.
func (p *processes) makeRoom() {
	now := time.Now()
	for tid, t := range p.mu.threads {
		if now.Sub(t.read) >= believed {
			p.forget(tid)
		}
	}
	for tid := range p.mu.threads {
		if len(p.mu.threads) < mostThreads {
			return
		}
		p.forget(tid)
	}
}

// close forgets all.
func (p *processes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tid := range p.mu.threads {
		p.forget(tid)
	}
}

// readProcess reads what a thread's process is from /proc.
func readProcess(tid uint32) *pailfs.Process {
	pid, _ := pailfs.ProcessOf(tid)
	if pid == 0 {
		return &pailfs.Process{PID: 0}
	}
	dir := "/proc/" + strconv.FormatUint(uint64(pid), 10) + "/"
	p := &pailfs.Process{PID: pid}
	if name, err := os.ReadFile(dir + "comm"); err == nil {
		p.Command = strings.TrimSuffix(string(name), "\n")
	}
	if program, err := os.Readlink(dir + "exe"); err == nil {
		p.Program = program
	}
	if groups, err := os.ReadFile(dir + "cgroup"); err == nil {
		p.Pod, p.Container = podOf(string(groups))
	}
	return p
}
