package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/session"
)

// sessionsDir is where, in the cache directory, the state of loader sessions lies.
const sessionsDir = "sessions"

// nodeStore keeps the state of loader sessions beside the cache, on this node.
type nodeStore struct{ dir string }

var _ prefetch.Store = (*nodeStore)(nil)

// path returns the file of a session. A task's name may hold anything, so the file
// has its hash.
func (s *nodeStore) path(key session.Key) string {
	sum := sha256.Sum256([]byte(key.Task))
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d.session", hex.EncodeToString(sum[:12]), key.UID, key.Worker))
}

// Where implements [prefetch.Store].
func (s *nodeStore) Where(key session.Key) prefetch.Persistence {
	return prefetch.Persistence{
		Kind: prefetch.KindNode, Path: s.path(key),
		Reason: "sessions are kept beside this node's cache: another node will not know what this one held",
	}
}

// Load implements [prefetch.Store].
func (s *nodeStore) Load(_ context.Context, key session.Key) ([]byte, error) {
	return os.ReadFile(s.path(key))
}

// Save implements [prefetch.Store]. It does not wait for the disk: after a power
// cut the state of a minute ago, or none, does as well.
func (s *nodeStore) Save(_ context.Context, key session.Key, data []byte) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("save session: %w", err)
	}
	path := s.path(key)
	temp := path + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(fmt.Errorf("save session: %w", err), os.Remove(temp))
	}
	return nil
}

// Remove implements [prefetch.Store].
func (s *nodeStore) Remove(_ context.Context, key session.Key) error {
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget session: %w", err)
	}
	return nil
}
