package sessionstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/session"
)

const (
	// Dir is where, in the cache directory, the state of loader sessions lies.
	Dir = "sessions"
	// mostBytes bounds what all of its files take of the disk, and share is
	// which part of the cache's size that is at most.
	mostBytes = 64 << 20
	share     = 8
	// diskBlock is what a file takes of the disk at least.
	diskBlock = 4 << 10

	suffix = ".session"
)

// Node keeps the state of loader sessions beside the cache, on this node. Its files
// count in the cache's size, see [Node.Bytes].
//
// What a daemon finds when it starts is left by one that died or was replaced. It stays
// until its session is opened again, its lease is over, or its room is needed.
type Node struct {
	dir  string
	most int64

	mu struct {
		sync.Mutex
		// sizes are what the files take of the disk, by name, and bytes is their sum.
		sizes map[string]int64
		bytes int64
		// left are those that were found, with the end of their lease.
		left map[string]time.Time
	}
}

var (
	_ keep.Store   = (*Node)(nil)
	_ keep.Expirer = (*Node)(nil)
)

// NewNode returns a store in dir, which need not be there.
func NewNode(dir string, cacheSize int64) *Node {
	s := &Node{dir: dir, most: mostBytes}
	if cacheSize > 0 {
		s.most = min(s.most, cacheSize/share)
	}
	s.mu.sizes = make(map[string]int64)
	s.mu.left = make(map[string]time.Time)
	return s
}

// Find counts what an earlier daemon left, and removes what is no session's any more. The
// directory must be this daemon's.
func (s *Node) Find(log *slog.Logger) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot look at the state of loader sessions", "dir", s.dir, "error", err)
	}
	s.mu.Lock()
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		until, err := savedUntil(filepath.Join(s.dir, e.Name()))
		if err != nil || !strings.HasSuffix(e.Name(), suffix) {
			until = time.Time{} // cut off while it was written, or of another version
		}
		s.count(e.Name(), info.Size())
		s.mu.left[e.Name()] = until
	}
	s.mu.Unlock()
	s.Expire(time.Now())
}

// savedUntil returns when the lease ends of the session whose file it is.
func savedUntil(path string) (time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = f.Close() }()
	return keep.SavedUntil(f)
}

// Bytes returns what the files take of the disk.
func (s *Node) Bytes() int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.bytes
}

// count notes that a file has so many bytes; a negative number means that it is gone.
// s.mu must be held.
func (s *Node) count(name string, size int64) {
	s.mu.bytes -= s.mu.sizes[name]
	delete(s.mu.sizes, name)
	delete(s.mu.left, name)
	if size >= 0 {
		s.mu.sizes[name] = onDisk(size)
		s.mu.bytes += onDisk(size)
	}
}

// onDisk returns what a file of so many bytes takes of the disk.
func onDisk(size int64) int64 { return max(1, (size+diskBlock-1)/diskBlock) * diskBlock }

// name returns the name of the file of a session. A task's name may hold anything, so it
// is a hash that the file has. Guests have files of their own.
func (s *Node) name(key session.Key) string {
	sum := sha256.Sum256([]byte(key.Task))
	guest := ""
	if key.Guest {
		guest = "g"
	}
	return fmt.Sprintf("%s-%d%s-%d%s", hex.EncodeToString(sum[:12]), key.UID, guest, key.Worker, suffix)
}

func (s *Node) path(key session.Key) string { return filepath.Join(s.dir, s.name(key)) }

// Where implements [keep.Store].
func (s *Node) Where(key session.Key) keep.Persistence {
	return keep.Persistence{
		Kind: keep.KindNode, Path: s.path(key),
		Reason: "sessions are kept beside this node's cache: another node will not know what this one held",
	}
}

// Load implements [keep.Store].
func (s *Node) Load(_ context.Context, key session.Key) ([]byte, error) {
	return os.ReadFile(s.path(key))
}

// Save implements [keep.Store]. It does not wait for the disk: after a power
// cut the state of a minute ago, or none, does as well.
func (s *Node) Save(_ context.Context, key session.Key, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.name(key)
	if err := s.makeRoom(name, onDisk(int64(len(data)))); err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("save session: %w", err)
	}
	path := filepath.Join(s.dir, name)
	temp := path + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("save session: %w", errors.Join(err, ignoreMissing(os.Remove(temp))))
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("save session: %w", errors.Join(err, os.Remove(temp)))
	}
	s.count(name, int64(len(data)))
	return nil
}

// makeRoom removes what a daemon before this one left, what ends first, until a file may
// have so many bytes. s.mu must be held.
func (s *Node) makeRoom(name string, bytes int64) error {
	left := make([]string, 0, len(s.mu.left))
	for other := range s.mu.left {
		if other != name {
			left = append(left, other)
		}
	}
	slices.SortFunc(left, func(x, y string) int {
		return cmp.Or(s.mu.left[x].Compare(s.mu.left[y]), cmp.Compare(x, y))
	})
	for _, other := range left {
		if s.mu.bytes-s.mu.sizes[name]+bytes <= s.most {
			break
		}
		if err := s.remove(other); err != nil {
			return err
		}
	}
	if others := s.mu.bytes - s.mu.sizes[name]; others+bytes > s.most {
		return fmt.Errorf("the state of others takes %d bytes and this one's %d, the limit is %d: raise cache-size, or announce less ahead", others, bytes, s.most)
	}
	return nil
}

// Remove implements [keep.Store].
func (s *Node) Remove(_ context.Context, key session.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.remove(s.name(key)); err != nil {
		return fmt.Errorf("forget session: %w", err)
	}
	return nil
}

// remove removes a file that may be there. s.mu must be held.
func (s *Node) remove(name string) error {
	if err := ignoreMissing(os.Remove(filepath.Join(s.dir, name))); err != nil {
		return err
	}
	s.count(name, -1)
	return nil
}

// Expire implements [keep.Expirer].
func (s *Node) Expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, until := range s.mu.left {
		if now.After(until) {
			_ = s.remove(name) // again in a minute
		}
	}
}

// ignoreMissing returns err unless it says that a file is not there.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
