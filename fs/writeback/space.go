package writeback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/staging"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Config says where changes are kept and how they are published.
type Config struct {
	// Dir is the staging directory: it must exist and is this space's alone.
	Dir string
	// Endpoint, Bucket and Prefix say what is mounted. A directory with changes to
	// something else is refused. Prefix is "" or ends with a slash.
	Endpoint, Bucket, Prefix string
	// Host names this machine in the names of conflicting files; "" means "host".
	Host string
	// User says who uses the directory, to those who find it in use.
	User string
	// StagingSize is the most that staged files may occupy, in bytes; 0 means that
	// only the disk sets a limit.
	StagingSize int64
	// FullWait is how long a writer waits for room; 0 means 30 seconds.
	FullWait time.Duration
	// Bandwidth bounds uploads, in bytes a second; 0 means that it does not.
	Bandwidth int64
	// Unpaced says that uploads give way to no program that writes fast.
	Unpaced bool
	// Through, if set, says whether fsync and close of a path wait until the object
	// store has it.
	Through func(path string) bool
	// Attrs keeps mode, owner and times as x-oss-meta-mode, -uid, -gid and -mtime, extended
	// attributes of files as x-oss-meta-xattr.
	Attrs bool
	// Busy, if set, says that programs wait for the object store now: uploads yield
	// for a moment, unless draining.
	Busy func() bool
	// Changed, if set, is told that a name changed without a call: by a conflict, or
	// because somebody else changed the bucket. No lock is held.
	Changed func(dir, name string)

	// Noted, if set, is told of the metadata of objects that were made here, before the
	// base tree shows them; nil says that it is to be asked for.
	Noted func(obj oss.Object, meta map[string]string)

	// limits are not the usual ones in tests.
	limits *limits
}

// limits are sizes in bytes, and numbers, from which things are done otherwise.
type limits struct {
	// inline is the largest content that travels inside its record, small the largest
	// that is sent in one request, part the smallest of the parts of larger files.
	inline, small, part int64
	// growth is how many parts there are of one size before it doubles.
	growth int
	// base is the smallest object that is copied as the beginning of its next version.
	base int64
	// copy is the largest object that is copied in one request, copyPart the parts of
	// larger ones.
	copy, copyPart int64
	// journal is the size from which the journal may be compacted, record the largest
	// body of a record; carried is the most content that a compaction carries over.
	journal, record, carried int64
	// ahead is how many waiting operations are considered at a time.
	ahead int
	// whole is the size from which an object is not fetched when it is opened for writing,
	// chunk the least size of what is fetched of it at a time.
	whole, chunk int64
}

var usualLimits = limits{inline: inlineLimit, small: smallLimit, part: minPart, growth: partsBeforeGrowth, base: leastBase, copy: maxCopy, copyPart: copyPart, journal: compactFrom, record: journal.MaxBody, carried: maxCarried, ahead: lookAhead, whole: wholeBelow, chunk: leastChunk}

// Cache is where published files go and edited objects come from.
type Cache interface {
	// Take brings the whole of obj to the new file dst and lets go of it. A file that
	// the cache has whole is moved, so that whoever has it open sees what is written
	// to it.
	Take(ctx context.Context, obj oss.Object, dst string) error
	// Adopt moves the file at path into the cache as the whole of obj. If it does not
	// want it, it returns false and leaves the file alone, as at the end of ctx, which is
	// its error then.
	Adopt(ctx context.Context, obj oss.Object, crc64 uint64, path string) (bool, error)
	// Drop says that the bucket no longer has obj: what the cache has of it goes when nobody
	// has it open.
	Drop(obj oss.Object)
	// MakeRoom frees disk space, as many bytes as it can up to bytes.
	MakeRoom(bytes int64) int64
	// Whole says that Take of obj needs no request.
	Whole(obj oss.Object) bool
	// ReadAt reads into p what obj has at off, as [io.ReaderAt] does. Errors are those of
	// [oss.RangeReader].
	ReadAt(ctx context.Context, obj oss.Object, p []byte, off int64) (int, error)
	// Pin keeps what there is of obj, and goes on reading it ahead as it is read, until done
	// is called.
	Pin(obj oss.Object) (done func())
}

// Space is everything that was changed through a mount. It is safe for concurrent
// use.
//
// Lock order: File.committing, File.adopting, File.content, those of the journal's file, Space.mu,
// that of its buffer. There is no I/O under Space.mu.
type Space struct {
	cfg    Config
	base   manifest.Tree
	bucket oss.Bucket
	cache  Cache
	log    *slog.Logger
	disk   disk

	journal *journal.Log
	lock    *os.File
	boot    string
	limit   *rate.Limiter
	// parts bounds the parts of large files in flight, memory the bytes of small
	// ones.
	parts, memory weights
	// pacing says what programs leave of the machine.
	pacing pacing

	// readSums are those of disputed versions.
	readSums readSums

	// inline has buffers, as pointers to slices, for content that travels inside records.
	inline sync.Pool

	// used is what staged files occupy.
	used *staging.Usage

	// spared is when the disk was last looked at for room.
	spared struct {
		sync.Mutex
		at time.Time
	}

	// writers counts the handles for writing, roomNow wakes who keeps room for them.
	writers atomic.Int64
	roomNow chan struct{}

	// publishNow, commitNow, settleNow and watchNow wake the loops.
	publishNow, commitNow, settleNow, watchNow chan struct{}
	// watching says that the watcher looks soon, without being woken.
	watching atomic.Bool

	mu struct {
		sync.Mutex
		*state.State
		// files are the living ones; runs what is known of operations beside the state.
		files     map[order.FileID]*File
		runs      map[uint64]*opRun
		undurable undurable
		// made are directories that were made a moment ago.
		made madeDirs
		// told is what programs know of the times of objects.
		told toldTimes
		// settling are names to compare with the base tree.
		settling settling
		// forgets counts forgotten names, changed is closed and replaced at every change.
		forgets uint64
		changed chan struct{}
		// writing are the files that are open for writing, early the requests for them that
		// are under way.
		writing map[order.FileID]*writing
		early   int
		// using counts those who work at an upload; abortNext is when to try again to
		// abort the useless ones, after a failure.
		using     map[string]int
		abortNext time.Time
		// asks is what is known of uploads whose names are not.
		asks map[string]ask
		// newest are the uploads that were begun or gone on with last, by file.
		newest map[order.FileID]string
		// draining counts those who wait for everything.
		draining int
		running  int
		prepared int
		closed   bool
		// doomed are staged files of which nothing is left but the bytes.
		doomed []doomed
		// troubles are the operations that do not go well; see opRun.
		troubles troubles
		// unfinished are the operations that hold back nothing; see opRun.
		unfinished map[uint64]bool
		// spoiled says that the disk lost something of a file, in this run or before.
		spoiled bool
		// held counts, by key, those who still read an object that is about to go;
		// heldLightly those who may open it yet, for whom a flush does not wait.
		held, heldLightly map[string]int
		// notices are names of which Config.Changed has to be told.
		notices []state.NameID
		stats   counters
	}
}

// ErrForeign means that a staging directory belongs to another bucket or prefix.
var ErrForeign = errors.New("staging directory belongs to another mount")

// ErrInUse means that another process uses the staging directory.
var ErrInUse = errors.New("staging directory is in use")

func (cfg Config) withDefaults() (Config, error) {
	switch {
	case cfg.Dir == "":
		return cfg, errors.New("no staging directory")
	case cfg.StagingSize < 0:
		return cfg, fmt.Errorf("staging size %d is negative", cfg.StagingSize)
	case cfg.Bandwidth < 0:
		return cfg, fmt.Errorf("upload bandwidth %d is negative", cfg.Bandwidth)
	case cfg.FullWait < 0:
		return cfg, fmt.Errorf("wait for room %v is negative", cfg.FullWait)
	}
	if cfg.FullWait == 0 {
		cfg.FullWait = 30 * time.Second
	}
	if cfg.Host == "" {
		cfg.Host = "host"
	}
	if cfg.limits == nil {
		cfg.limits = &usualLimits
	}
	return cfg, nil
}

// Open takes a staging directory into use: what the last run left is there again,
// and is published once Run is called. base is what the bucket shows, bucket where
// changes go. reg and log may be nil.
//
// Errors: [ErrInUse], [ErrForeign], and those of the file system.
func Open(cfg Config, base manifest.Tree, bucket oss.Bucket, cache Cache, reg prometheus.Registerer, log *slog.Logger) (*Space, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	return open(cfg, base, bucket, cache, reg, log, realDisk{}, boot)
}

func open(cfg Config, base manifest.Tree, bucket oss.Bucket, cache Cache, reg prometheus.Registerer, log *slog.Logger, d disk, boot string) (*Space, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure write-back: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Space{
		cfg: cfg, base: base, bucket: bucket, cache: cache, log: log, disk: d, boot: boot,
		publishNow: make(chan struct{}, 1), commitNow: make(chan struct{}, 1), settleNow: make(chan struct{}, 1), watchNow: make(chan struct{}, 1),
		roomNow: make(chan struct{}, 1),
		parts:   newWeights(maxPartsInFlight), memory: newWeights(maxSmallBytes), pacing: pacing{off: cfg.Unpaced},
	}
	if cfg.Bandwidth > 0 {
		s.limit = rate.NewLimiter(rate.Limit(cfg.Bandwidth), int(max(min(cfg.Bandwidth, 1<<30), 1<<20)))
	}
	s.used = staging.NewUsage(s.occupied)
	s.mu.State = state.NewState()
	s.mu.files = make(map[order.FileID]*File)
	s.mu.runs = make(map[uint64]*opRun)
	s.mu.undurable, s.mu.troubles = newUndurable(), newTroubles()
	s.mu.unfinished = make(map[uint64]bool)
	s.mu.held, s.mu.heldLightly = make(map[string]int), make(map[string]int)
	s.mu.made = make(madeDirs)
	s.mu.using = make(map[string]int)
	s.mu.asks = make(map[string]ask)
	s.mu.newest = make(map[order.FileID]string)
	s.mu.writing = make(map[order.FileID]*writing)
	if err := newMetrics(reg, s); err != nil {
		return nil, fmt.Errorf("register metrics of write-back: %w", err)
	}
	if s.lock, err = lockDir(cfg.Dir, cfg.User); err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		s.lock.Close() //nolint:errcheck // it was only locked
		return nil, fmt.Errorf("recover %q: %w", cfg.Dir, err)
	}
	return s, nil
}

// lockDir makes sure that no other process uses dir, and leaves word of who does.
func lockDir(dir, user string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open staging directory: %w", err)
	}
	if err := flock(lock, dir, syscall.LOCK_EX); err != nil {
		lock.Close() //nolint:errcheck // it was only opened
		return nil, err
	}
	err = lock.Truncate(0)
	if err == nil && user != "" {
		_, err = lock.WriteAt([]byte(user+"\n"), 0)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		lock.Close() //nolint:errcheck // the error before counts
		return nil, fmt.Errorf("open staging directory: %w", err)
	}
	return lock, nil
}

// flock locks the lock file of dir, or says who has it.
func flock(lock *os.File, dir string, how int) error {
	err := syscall.Flock(int(lock.Fd()), how|syscall.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %q: %w", dir, err)
	}
	if how == syscall.LOCK_EX && syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return fmt.Errorf("%w: %q, by a command that reads it", ErrInUse, dir)
	}
	text := make([]byte, 4096)
	n, _ := lock.ReadAt(text, 0) // what it says is a help, no more
	if user, _, _ := strings.Cut(string(text[:n]), "\n"); user != "" {
		return fmt.Errorf("%w: %q, by %s", ErrInUse, dir, user)
	}
	return fmt.Errorf("%w: %q", ErrInUse, dir)
}

// bootID names the time since the machine was started: what a process wrote before
// is still there as long as it is the same.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return string(b[:max(len(b)-1, 0)]), nil
}

// Run publishes what is changed until ctx ends, and returns when nothing of it is
// under way any more.
func (s *Space) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.committer(ctx); return nil })
	g.Go(func() error { s.publisher(ctx); return nil })
	g.Go(func() error { s.settler(ctx); return nil })
	g.Go(func() error { s.watcher(ctx); return nil })
	g.Go(func() error { s.roomKeeper(ctx); return nil })
	return g.Wait()
}

// Close commits what is there and closes the journal. Run must have returned and
// all handles must be released. What is not published stays for the next Open.
func (s *Space) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	err := s.commitAll()
	s.removeDoomed()
	err = errors.Join(err, s.journal.Close())
	return errors.Join(err, s.lock.Close())
}

// record appends r to the journal and applies it. s.mu is held; the caller writes
// the journal up to the position it gets before it tells anybody.
func (s *Space) record(r state.Record) int64 {
	first := s.mu.NextOp
	pos := s.journal.Append(func(b []byte) []byte { return state.AppendBody(b, r) })
	s.mu.Apply(r)
	for id := first; id < s.mu.NextOp; id++ {
		if s.mu.Ops[id] != nil {
			s.mu.runs[id] = &opRun{pos: pos, wanted: time.Now()}
			s.undurableUntil(id, pos)
		}
	}
	if s.mu.NextOp > first || len(s.mu.Renewed) > 0 {
		s.doubt()
	}
	for _, id := range s.mu.Renewed {
		if run := s.mu.runs[id]; run != nil {
			s.undurableUntil(id, pos)
			run.pos, run.waiting, run.meant = pos, false, true
			run.renewed++
			if run.unsteady == 0 {
				run.next = time.Time{}
			}
		}
	}
	s.mu.Renewed = s.mu.Renewed[:0]
	for _, id := range s.mu.Dropped {
		s.mu.troubles.end(id)
		run := s.mu.runs[id]
		if run == nil {
			continue
		}
		if run.ahead != nil {
			run.ahead = nil
			s.mu.prepared--
		}
		if !run.running {
			delete(s.mu.runs, id)
		}
	}
	s.mu.Dropped = s.mu.Dropped[:0]
	if len(s.mu.Unkept) > 0 {
		wake(s.settleNow)
	}
	for _, id := range s.mu.Tally.Counted {
		s.count(id)
	}
	s.mu.Tally.Counted = s.mu.Tally.Counted[:0]
	for _, n := range s.mu.Named {
		s.mu.settling.add(n, pos)
	}
	s.mu.Named = s.mu.Named[:0]
	for _, dir := range s.mu.Left {
		delete(s.mu.made, dir)
	}
	s.mu.Left = s.mu.Left[:0]
	s.changed()
	wake(s.commitNow)
	return pos
}

// changed lets those look again who wait for something. s.mu is held.
func (s *Space) changed() {
	if s.mu.changed != nil {
		close(s.mu.changed)
		s.mu.changed = nil
	}
}

// nextChange returns what is closed by the next change. s.mu is held.
func (s *Space) nextChange() <-chan struct{} {
	if s.mu.changed == nil {
		s.mu.changed = make(chan struct{})
	}
	return s.mu.changed
}

// tell does the same without the lock.
func (s *Space) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

// Sync returns when every change so far survives the loss of power, but for content
// that was not synced itself.
func (s *Space) Sync(context.Context) error { return s.journal.Sync(s.journal.End()) }

// path returns where the bytes of a file are.
func (s *Space) path(id order.FileID) string {
	return stagedPath(s.cfg.Dir, id)
}

func stagedPath(dir string, id order.FileID) string {
	var name [16]byte
	for i := range name {
		name[i] = "0123456789abcdef"[id>>(60-4*i)&15]
	}
	return dir + "/" + stagedDir + "/" + string(name[:])
}

// now is the time for records.
func now() int64 { return time.Now().UnixNano() }

// wake lets a loop go round once more.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
