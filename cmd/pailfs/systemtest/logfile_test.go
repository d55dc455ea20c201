package systemtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// logFile is a log: a file that only grows. The size of its version is what was begun.
type logFile struct {
	v version

	mu sync.Mutex
	// safe is how much of it is.
	safe int64
}

// keep notes that all that was begun is safe.
func (a *logFile) keep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.safe = a.v.Size
}

// acknowledged returns how much is safe.
func (a *logFile) acknowledged() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.safe
}

// session opens the log, appends some pieces and closes it. What fsync accepts is safe,
// and, if that is meant, what close does.
func (a *logFile) session(at string, rng *rand.Rand, closeKeeps bool) error {
	f, err := os.OpenFile(filepath.Join(at, a.v.Key), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for range 1 + rng.IntN(20) {
		piece := make([]byte, 1+rng.IntN(20_000))
		a.v.fill(piece, a.v.Size)
		a.v.Size += int64(len(piece))
		if _, err := f.Write(piece); err != nil {
			return errors.Join(err, f.Close())
		}
		if rng.IntN(6) == 0 {
			if err := f.Sync(); err != nil {
				return errors.Join(err, f.Close())
			}
			a.keep()
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if closeKeeps {
		a.keep()
	}
	return nil
}

// check fails unless what there is of the log begins with the bytes that were safe, and has
// nothing in it that was not written. Beyond what was safe there may be zeros after a loss of
// power: a disk takes the size of a file that grows before the end of its last page.
func (a *logFile) check(content []byte, err error, safe int64, powerLost bool) error {
	if err != nil {
		if safe == 0 {
			return nil
		}
		return fmt.Errorf("%s: %w", a.v.Key, err)
	}
	if size := int64(len(content)); size < safe || size > a.v.Size {
		return fmt.Errorf("%s: %d bytes, %d are safe and %d were begun", a.v.Key, size, safe, a.v.Size)
	}
	sure := content
	if powerLost {
		sure = content[:safe]
	}
	if a.v.wrong(sure, 0) >= 0 {
		return errors.New(a.v.explain(sure, 0, nil))
	}
	want := make([]byte, len(content)-len(sure))
	a.v.fill(want, safe)
	for i, b := range content[len(sure):] {
		if b != want[i] && b != 0 {
			return fmt.Errorf("%s: the byte at %d is neither what was written nor zero: %s", a.v.Key, safe+int64(i), a.v.explain(content, 0, nil))
		}
	}
	return nil
}
