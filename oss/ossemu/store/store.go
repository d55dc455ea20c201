package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

	lastID atomic.Uint64
	// longJournal is the least size of a journal that a snapshot replaces.
	longJournal int64

	packs struct {
		sync.Mutex
		// current is the pack that is being filled, end where its free part begins.
		current *file
		end     int64
		// open are all packs, by number.
		open map[uint64]*file
	}

	// appends serialise the appends to one key, which write behind the end of a
	// file that only that key has.
	appends [64]sync.Mutex
	seed    maphash.Seed

	mu struct {
		sync.RWMutex
		buckets map[string]*bucket
		// attributes shares equal attributes between objects.
		attributes map[string]*Attributes
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
	s := &Store{dir: cfg.Dir, log: cfg.Logger, now: cfg.Now, seed: maphash.MakeSeed()}
	s.longJournal = 64 << 20
	s.packs.open = make(map[uint64]*file)
	s.mu.buckets = make(map[string]*bucket)
	s.mu.attributes = make(map[string]*Attributes)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
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
	s.packs.Lock()
	for _, f := range s.packs.open {
		err = errors.Join(err, f.pack.Close())
	}
	s.packs.Unlock()
	return errors.Join(err, s.lock.Close())
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

// intern returns attributes equal to a that are shared with other objects.
func (s *Store) intern(a *Attributes) *Attributes {
	var e encoder
	encodeAttributes(&e, a)
	if known := s.mu.attributes[string(e.b)]; known != nil {
		return known
	}
	// Attributes that differ from object to object are not worth remembering.
	if len(s.mu.attributes) < 4096 && len(a.Meta) == 0 && len(a.Tags) == 0 && a.Target == "" {
		s.mu.attributes[string(e.b)] = a
	}
	return a
}
