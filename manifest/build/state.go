package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// state is the directory of a build: what is being built, and the log of what is
// done. It belongs to one process at a time and survives it.
type state struct {
	dir  string
	lock *os.File
	plan plan
	// resumed says that an earlier process began this build.
	resumed bool
	// dropped is when work that was found and was too old had last been done.
	dropped time.Time
}

// staleAfter is how long unfinished work is worth going on with: what was found out
// before that is likely to be wrong by now.
const staleAfter = 24 * time.Hour

// plan says what is being built. A build goes on only where the plan is the same.
type plan struct {
	Version int    `json:"version"`
	Bucket  string `json:"bucket"`
	Prefix  string `json:"prefix"`
	Source  string `json:"source"`
	Attrs   bool   `json:"attrs"`
	// Began is when the first process began.
	Began time.Time `json:"began"`
}

const planVersion = 1

// The files of a state directory.
const (
	planFile     = "plan.json"
	progressFile = "progress.log"
	lockFile     = "lock"
	spillDir     = "spill"
	// ManifestFile is where a build without an output of its own puts the manifest.
	ManifestFile = "manifest"
)

// ErrBusy means that another process builds in the same state directory.
var ErrBusy = errors.New("another build is running")

// openState opens or makes the directory dir for the build that want describes.
// restart drops what is there, and so does its age.
func openState(dir string, want plan, restart bool) (_ *state, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w: name another with --state", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("use the state directory: %w: name another with --state", err)
	}
	s := &state{dir: dir, lock: lock}
	defer func() {
		if err != nil {
			_ = lock.Close() // the error is told already
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w with the state directory %s: wait for it, or name another with --state", ErrBusy, dir)
		}
		return nil, fmt.Errorf("lock the state directory %s: %w", dir, err)
	}
	if info, err := os.Stat(s.path(progressFile)); err == nil && !restart && time.Since(info.ModTime()) > staleAfter {
		s.dropped, restart = info.ModTime(), true
	}
	if restart {
		if err := s.clear(); err != nil {
			return nil, err
		}
	}
	if err := s.adopt(want); err != nil {
		return nil, err
	}
	// What a killed process had spilled is made again from the log.
	if err := os.RemoveAll(s.path(spillDir)); err != nil {
		return nil, err
	}
	return s, os.MkdirAll(s.path(spillDir), 0o700)
}

// adopt reads the plan that is there, or writes want.
func (s *state) adopt(want plan) error {
	text, err := os.ReadFile(s.path(planFile))
	if errors.Is(err, fs.ErrNotExist) {
		s.plan = want
		return writeWhole(s.path(planFile), func(f *os.File) error { return json.NewEncoder(f).Encode(want) })
	}
	if err != nil {
		return fmt.Errorf("read the plan of the build: %w", err)
	}
	var have plan
	if err := json.Unmarshal(text, &have); err != nil || have.Version != planVersion {
		return fmt.Errorf("the state directory %s is not of this version of pailfs: give --restart to drop it, or name another with --state", s.dir)
	}
	began := have.Began
	have.Began = want.Began
	if have != want {
		return fmt.Errorf("the state directory %s holds an unfinished build of oss://%s/%s from %s: finish that, give --restart to drop it, or name another with --state",
			s.dir, have.Bucket, have.Prefix, have.Source)
	}
	have.Began = began
	s.plan, s.resumed = have, true
	return nil
}

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

// clear removes everything but the lock. The plan goes last: a log without its plan
// would be taken for that of the next build.
func (s *state) clear() error {
	for _, name := range []string{progressFile, ManifestFile, spillDir, planFile} {
		if err := os.RemoveAll(s.path(name)); err != nil {
			return fmt.Errorf("clear the state directory: %w", err)
		}
	}
	return nil
}

// forget removes the directory, unless something else lies in it.
func (s *state) forget() error {
	if err := s.clear(); err != nil {
		return err
	}
	if err := os.Remove(s.path(lockFile)); err != nil {
		return fmt.Errorf("clear the state directory: %w", err)
	}
	_ = os.Remove(s.dir) // it stays if the user keeps something there
	return nil
}

// close gives the directory up to the next process.
func (s *state) close() error { return s.lock.Close() }

// writeWhole makes a file that is there whole or not at all.
func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
