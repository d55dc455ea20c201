package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	pailfs "github.com/pailfs/pailfs/fs"
)

// What happens when the sink does not take records as fast as they come.
const (
	// Count drops records and counts them.
	Count = "count"
	// Block makes operations wait.
	Block = "block"
)

// Config says where the audit of a mount goes.
type Config struct {
	// To is the absolute path of a file, [Syslog] or [Journald].
	To string
	// Full is [Count] or [Block].
	Full string
	// Source, MountPoint and Version are those of the mount and the program, for the first line.
	Source, MountPoint, Version string
	// queued and linger take the place of mostQueued and of linger, in tests.
	queued int
	linger time.Duration
}

const (
	// mostQueued is how many records wait at most: at 300 bytes each, 5 MiB.
	mostQueued = 16 << 10
	// linger is for how long the writer collects records after the first: a write for each
	// would cost more than many an operation.
	linger = 20 * time.Millisecond
	// retryEvery is how long after a failure the sink is tried again.
	retryEvery = 250 * time.Millisecond
	// closePatience is how long a sink that fails is tried when the mount ends, and hangs how
	// long one may take that does not answer at all.
	closePatience = 2 * time.Second
	hangs         = 5 * time.Second
	// warnEvery is how often the daemon's log tells of dropped records.
	warnEvery = 10 * time.Second
	// mostLines is how many bytes are encoded before they are written.
	mostLines = 256 << 10
)

// Log is an audit that is open. Its methods may be called from any goroutine.
type Log struct {
	cfg       Config
	log       *slog.Logger
	processes processes

	// wake tells the writer of records or of the end, turn of a rotation.
	wake, turn chan struct{}
	ended      chan struct{}
	closeOnce  sync.Once

	writer writer

	mu struct {
		sync.Mutex
		queue    []entry
		admitted int
		// room is closed when the queue was taken by the writer; nil if nobody waits.
		room    chan struct{}
		waiting int
		// ending says that nobody waits for room any more.
		ending  bool
		closing bool
		// over says that nobody writes any more.
		over bool
		// dropped counts records since the last line that told of some, the first and last
		// of them then and there.
		dropped     uint64
		first, last time.Time
		status      Status
	}
}

var _ pailfs.Auditor = (*Log)(nil)

// Status is the present state of an audit.
type Status struct {
	// To and Full are those of [Config].
	To   string `json:"to"`
	Full string `json:"full"`
	// Written counts records that the sink has taken, Queued those that wait for it, and
	// Dropped those that nobody will see, since the mount began.
	Written uint64 `json:"written_records"`
	Queued  int    `json:"queued_records"`
	Dropped uint64 `json:"dropped_records"`
	// Waiting counts operations that wait for room.
	Waiting int `json:"waiting_operations"`
	// Reopened counts how often the file was opened again.
	Reopened uint64 `json:"reopened"`
	// Failures counts writes that the sink refused. Error is why it refuses now, and Since
	// when it began to; absent while it does not.
	Failures uint64    `json:"failures"`
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// Open opens an audit and writes its first line. Close ends it.
func Open(cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Log, error) {
	if cfg.queued == 0 {
		cfg.queued = mostQueued
	}
	if cfg.linger == 0 {
		cfg.linger = linger
	}
	s, err := openSink(cfg.To)
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, log: log, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), ended: make(chan struct{})}
	l.mu.status = Status{To: cfg.To, Full: cfg.Full}
	l.writer = writer{log: l, sink: s, warns: rate.NewLimiter(rate.Every(warnEvery), 1)}
	l.writer.own(verbStart, []member{
		{"source", cfg.Source}, {"mountpoint", cfg.MountPoint}, {"version", cfg.Version}, {"full", cfg.Full},
	})
	if err = l.writer.write(); err == nil {
		err = register(reg, l.Status)
	}
	if err != nil {
		_ = s.close() // the first error counts
		return nil, fmt.Errorf("%s does not take the audit: %w: make room, or choose another place", cfg.To, err)
	}
	go l.run()
	return l, nil
}

// Process implements [pailfs.Auditor].
func (l *Log) Process(tid uint32) *pailfs.Process { return l.processes.of(tid) }

// Admit implements [pailfs.Auditor].
func (l *Log) Admit(ctx context.Context) error {
	if l.cfg.Full != Block {
		return nil
	}
	l.mu.Lock()
	for len(l.mu.queue)+l.mu.admitted >= l.cfg.queued && !l.mu.ending {
		if l.mu.room == nil {
			l.mu.room = make(chan struct{})
		}
		room := l.mu.room
		l.mu.waiting++
		l.mu.Unlock()
		var err error
		select {
		case <-room:
			err = ctx.Err()
		case <-ctx.Done():
			// A request that was answered meanwhile is done without an error.
			err = cmp.Or(ctx.Err(), context.Canceled)
		}
		l.mu.Lock()
		l.mu.waiting--
		if err != nil {
			l.mu.Unlock()
			return err
		}
	}
	l.mu.admitted++
	l.mu.Unlock()
	return nil
}

// Done implements [pailfs.Auditor].
func (l *Log) Done(op pailfs.Operation) { l.add(&entry{Operation: op}) }

// add queues the record of an operation that was admitted, or of a close.
func (l *Log) add(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bounded := l.cfg.Full != Block
	if !bounded && e.Verb != pailfs.CloseFile {
		l.mu.admitted--
	}
	if l.mu.over || bounded && len(l.mu.queue) >= l.cfg.queued {
		l.drop(1, e.Began)
		return
	}
	l.push(e)
}

// push queues a record and wakes the writer for the first. mu is held.
func (l *Log) push(e *entry) {
	l.mu.queue = append(l.mu.queue, *e)
	if n := len(l.mu.queue); n == 1 || n == l.cfg.queued/2 {
		l.tell(l.wake)
	}
}

// drop counts records that are not written. mu is held.
func (l *Log) drop(n uint64, at time.Time) {
	if l.mu.dropped == 0 {
		l.mu.first = at
	}
	l.mu.dropped += n
	l.mu.last = at
	l.mu.status.Dropped += n
}

func (*Log) tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Reopen opens the file again after it was rotated. It returns before that is done; what is
// written afterwards begins with a record of it.
func (l *Log) Reopen() { l.tell(l.turn) }

// End lets all go on who wait for room, and lets nobody wait any more: the mount has ended, and what
// is still answered must not hold up its daemon. Close follows.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ending = true
	l.makeRoom()
}

// Close writes what is queued, and the last line. It is an error if the sink hangs; what was
// lost is logged.
func (l *Log) Close() (err error) {
	l.closeOnce.Do(func() {
		l.mu.Lock()
		l.mu.closing, l.mu.ending = true, true
		l.makeRoom()
		l.mu.Unlock()
		l.tell(l.wake)
		select {
		case <-l.ended:
			l.processes.close()
			err = l.writer.sink.close()
		case <-time.After(hangs):
			err = fmt.Errorf("%s hangs: the last records of the audit are lost", l.cfg.To)
		}
		if s := l.Status(); s.Dropped > 0 {
			l.log.Warn("the audit is not complete", "to", l.cfg.To, "dropped_records", s.Dropped)
		}
	})
	return err
}

// Status returns the present state.
func (l *Log) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.status
	s.Queued, s.Waiting = len(l.mu.queue), l.mu.waiting
	return s
}

// makeRoom lets those go on who wait for room. mu is held.
func (l *Log) makeRoom() {
	if l.mu.room != nil {
		close(l.mu.room)
		l.mu.room = nil
	}
}
