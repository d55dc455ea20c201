package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// allocateStep is how much more is allocated at once, if there is room, in bytes.
const allocateStep = 2 << 20

// Reserve makes sure that room for so many bytes is allocated beyond the end of the
// journal, and for as many in the file that will take its place. ENOSPC says that there is none.
func (j *Log) Reserve(need int64) error {
	if j.HasRoom(need) {
		return nil
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	from := j.mu.size
	least := from + int64(len(j.mu.buffer)) + need
	allocated, spare := j.mu.allocated, j.mu.spare
	j.mu.Unlock()
	var err error
	if allocated < least {
		allocated, err = allocate(j.file, from, least)
	}
	if err == nil && spare < need {
		spare, err = j.allocateSpare(need)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.allocated, j.mu.spare = allocated, spare
	j.mu.low = errors.Is(err, syscall.ENOSPC)
	return err
}

// HasRoom reports whether that much is reserved already.
func (j *Log) HasRoom(need int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.allocated-j.mu.size-int64(len(j.mu.buffer)) >= need && j.mu.spare >= need
}

// allocateSpare allocates room for the next journal.
func (j *Log) allocateSpare(need int64) (int64, error) {
	file, err := os.OpenFile(filepath.Join(j.dir, nextName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return allocate(file, 0, need)
}

// allocate gives a file blocks up to the offset end, or some more, and returns up to
// where it has them. A file system that cannot do that has no reserve.
func allocate(file *os.File, from, end int64) (int64, error) {
	var err error
	for _, more := range []int64{allocateStep, 0} {
		err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, end+more-from)
		switch {
		case err == nil:
			return end + more, nil
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			return 1 << 62, nil
		case !errors.Is(err, unix.ENOSPC):
			return from, fmt.Errorf("reserve room for the journal: %w", err)
		}
	}
	return from, fmt.Errorf("reserve room for the journal: %w", err)
}

// Low reports whether the reserve is not what it should be.
func (j *Log) Low() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.low
}
