package writeback

import (
	"fmt"
	"os"
	"sync"
)

// journal appends records to a file. Positions are bytes appended since the
// journal was opened, and go on through compactions.
//
// Lock order: syncing, writing, mu.
type journal struct {
	disk disk
	dir  string

	// syncing is held while the file is brought to the disk, writing while it is
	// written or replaced.
	syncing sync.Mutex
	writing sync.Mutex
	file    *os.File
	// idle is a buffer for what is appended next; writing guards it.
	idle []byte

	mu struct {
		sync.Mutex
		buffer []byte
		// appended ≥ written ≥ synced are positions.
		appended, written, synced int64
		// size is the length of the file, allocated the offset up to which it has blocks,
		// spare the same of the file that will take its place. low says that there was no
		// room for more; see reserve.go.
		size, allocated, spare int64
		low                    bool
		// err is why nothing can be written any more.
		err error
	}
}

// append adds r to what will be written and returns the position after it. The
// caller holds the lock under which it applies r.
func (j *journal) append(r record) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := len(j.mu.buffer)
	j.mu.buffer = frame(j.mu.buffer, r)
	j.mu.appended += int64(len(j.mu.buffer) - before)
	return j.mu.appended
}

// write returns when everything up to pos was written to the file.
func (j *journal) write(pos int64) error {
	j.mu.Lock()
	done, err := j.mu.written >= pos, j.mu.err
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.writeAll()
}

// writeAll writes what was appended. The caller holds j.writing.
func (j *journal) writeAll() error {
	j.mu.Lock()
	buffer, at, err := j.mu.buffer, j.mu.size, j.mu.err
	if err != nil || len(buffer) == 0 {
		j.mu.Unlock()
		return err
	}
	j.mu.buffer, j.idle = j.idle, nil
	j.mu.Unlock()
	// A partial write is repeated from its beginning: the place is the same.
	_, err = j.file.WriteAt(buffer, at)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.mu.buffer = append(buffer, j.mu.buffer...)
		return fmt.Errorf("write journal: %w", err)
	}
	j.mu.size += int64(len(buffer))
	j.mu.written += int64(len(buffer))
	if cap(buffer) <= idleBuffer {
		j.idle = buffer[:0]
	}
	return nil
}

// sync returns when everything up to pos is on the disk. Those who wait share one
// flush.
func (j *journal) sync(pos int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	done, err := j.mu.synced >= pos, j.mu.err
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	if err := j.write(pos); err != nil {
		return err
	}
	j.mu.Lock()
	upTo := j.mu.written
	j.mu.Unlock()
	if err := j.disk.sync(j.file); err != nil {
		// What the disk has is not known any more, and cannot be found out.
		err = fmt.Errorf("sync journal: %w", err)
		j.mu.Lock()
		j.mu.err = err
		j.mu.Unlock()
		return err
	}
	j.mu.Lock()
	j.mu.synced = max(j.mu.synced, upTo)
	j.mu.Unlock()
	return nil
}

// synced returns the position up to which everything is on the disk.
func (j *journal) synced() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.synced
}

// failure returns why nothing can be written any more, if so.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.err
}

// end returns the position after the last record.
func (j *journal) end() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.appended
}

func (j *journal) size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.size
}

// broken makes err the end of all writing: nobody has the file that counts open.
func (j *journal) broken(err error) error {
	err = fmt.Errorf("replace journal: %w", err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.err = err
	return err
}
