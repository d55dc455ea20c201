package journal

import (
	"errors"
	"fmt"
	"sync"
)

// Replace replaces the journal by content, which begins with [Header] and says the same as
// all that was appended. content is called under appending, the lock under which the caller
// appends. Where Replace fails the journal is what it was, or nothing can be written any more.
func (j *Log) Replace(appending sync.Locker, content func() ([]byte, error)) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.writing.Lock()
	defer j.writing.Unlock()
	appending.Lock()
	b, err := content()
	j.mu.Lock()
	upTo, buffer := j.mu.appended, j.mu.buffer
	if err == nil {
		// What was not written yet is in the content.
		j.mu.buffer = nil
	}
	j.mu.Unlock()
	appending.Unlock()
	if err != nil {
		return err
	}
	file, err := create(j.disk, j.dir, b)
	if errors.Is(err, ErrReplaced) {
		// The file that is open has no name any more: what is written there is lost.
		return j.broken(err)
	}
	if err != nil {
		j.mu.Lock()
		j.mu.buffer = append(buffer, j.mu.buffer...)
		j.mu.Unlock()
		return err
	}
	j.file.Close() //nolint:errcheck // nothing reads it any more
	j.file = file
	j.note(int64(len(b)))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.size = int64(len(b))
	j.mu.written, j.mu.synced = upTo, upTo
	j.mu.allocated, j.mu.spare = max(j.mu.spare, j.mu.size), 0
	return nil
}

// broken makes err the end of all writing: nobody has the file that counts open.
func (j *Log) broken(err error) error {
	err = fmt.Errorf("replace journal: %w", err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.err = err
	return err
}
