package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what a [Store] is made of.
type Config struct {
	// Dir is made if missing.
	Dir string
	// Logger receives what goes wrong in the background; nil discards it.
	Logger *slog.Logger
	// Now is the clock for modification times; nil means time.Now.
	Now func() time.Time
}

// Store holds buckets of objects. It is safe for concurrent use.
//
// Lock order: an append lock, then mu. The lock of packs is taken alone.
type Store struct {
	dir  string
	log  *slog.Logger
	now  func() time.Time
	lock *os.File

	data  dataDir
	index indexDir
	// longJournal is the least size of a journal that a snapshot replaces.
	longJournal int64
	appends     appendLocks

	mu struct {
		sync.RWMutex
		buckets    buckets
		attributes sharedAttributes
		journal    *journal
		// generation is the journal's number.
		generation int
		// snapshotSize is the size of the last snapshot, by which the journal is
		// judged too long.
		snapshotSize int64
		snapshotting bool
		closed       bool
	}
	// background waits for the writing of a snapshot.
	background sync.WaitGroup
}

// Open opens the store in cfg.Dir.
func Open(cfg Config) (*Store, error) {
	s := &Store{dir: cfg.Dir, log: cfg.Logger, now: cfg.Now, index: indexDir(filepath.Join(cfg.Dir, "index"))}
	s.longJournal = 64 << 20
	s.appends.seed = maphash.MakeSeed()
	s.mu.buckets = make(buckets)
	s.mu.attributes = make(sharedAttributes)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.data.dir, s.data.log = s.dir, s.log
	s.data.packs.open = make(map[uint64]*file)
	if err := s.open(); err != nil {
		if s.lock != nil {
			_ = s.lock.Close() // gives up the lock, nothing else
		}
		return nil, fmt.Errorf("open store %q: %w", cfg.Dir, err)
	}
	return s, nil
}

func (s *Store) open() error {
	for _, d := range []string{"index", "packs", "blobs"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o700); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrInUse
		}
		return fmt.Errorf("lock: %w", err)
	}
	s.lock = lock
	return s.recover()
}

// Close waits for what runs in the background and gives the directory up. All
// Content must have been closed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil
	}
	s.mu.closed = true
	s.mu.Unlock()
	s.background.Wait()
	err := s.mu.journal.close()
	return errors.Join(err, s.data.close(), s.lock.Close())
}

// commit appends a record, after which the change has happened. The caller
// holds mu and makes the change in memory when commit succeeds.
func (s *Store) commit(e *encoder) error {
	if s.mu.closed {
		return ErrClosed
	}
	// First, for the change that e tells of is not in memory yet: it belongs to the
	// journal that follows the snapshot.
	s.snapshotIfLong()
	return s.mu.journal.append(e.b)
}
