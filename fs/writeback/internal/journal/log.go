package journal

import (
	"fmt"
	"os"
	"sync"
)

// idleBuffer is the largest buffer that is kept for the next records, in bytes.
const idleBuffer = 1 << 20

// Log appends records to the journal of a directory. Positions are bytes appended since the
// journal was opened, and go on through [Log.Replace].
//
// Lock order: syncing, writing, the lock under which the caller appends, mu.
type Log struct {
	disk Disk
	dir  string
	boot string

	// syncing is held while the file is brought to the disk, writing while it is
	// written or replaced.
	syncing sync.Mutex
	// mark is the file that says how much of the journal is on the disk, nil before it is
	// opened; syncing guards it.
	mark    *os.File
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

// Open returns the journal of dir, which is open as file, and of which the first good bytes
// were read by [Replay]; boot names the run of the machine. What an earlier process of the same
// run has not brought to the disk is written again, so that [Log.Sync] vouches for it, too. The
// log closes the file; where Open fails the caller does.
func Open(disk Disk, dir, boot string, file *os.File, good int64) (*Log, error) {
	j := &Log{disk: disk, dir: dir, boot: boot, file: file}
	// What is read is not on the disk before the first flush: position 0 is not.
	j.mu.size, j.mu.synced = good, -1
	if err := j.writeAgain(good); err != nil {
		j.closeMark()
		return nil, err
	}
	return j, nil
}

// Append adds a record to what will be written and returns the position after it; body
// appends what the record says. The caller holds the lock under which it applies the record.
func (j *Log) Append(body func(b []byte) []byte) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := len(j.mu.buffer)
	j.mu.buffer = Frame(j.mu.buffer, body)
	j.mu.appended += int64(len(j.mu.buffer) - before)
	return j.mu.appended
}

// Write returns when everything up to pos was written to the file.
func (j *Log) Write(pos int64) error {
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
func (j *Log) writeAll() error {
	j.mu.Lock()
	buffer, at, err := j.mu.buffer, j.mu.size, j.mu.err
	if err != nil || len(buffer) == 0 {
		j.mu.Unlock()
		return err
	}
	j.mu.buffer, j.idle = j.idle, nil
	j.mu.Unlock()
	// A partial write is repeated from its beginning: the place is the same.
	err = j.disk.WriteAt(j.file, buffer, at)
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

// Sync returns when everything up to pos is on the disk. Those who wait share one
// flush.
func (j *Log) Sync(pos int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	done, err := j.mu.synced >= pos, j.mu.err
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	if err := j.Write(pos); err != nil {
		return err
	}
	j.mu.Lock()
	upTo, size := j.mu.written, j.mu.size
	j.mu.Unlock()
	if err := j.disk.Sync(j.file); err != nil {
		// What the disk has is not known any more, and cannot be found out.
		err = fmt.Errorf("sync journal: %w", err)
		j.mu.Lock()
		j.mu.err = err
		j.mu.Unlock()
		return err
	}
	j.note(size)
	j.mu.Lock()
	j.mu.synced = max(j.mu.synced, upTo)
	j.mu.Unlock()
	return nil
}

// Synced returns the position up to which everything is on the disk.
func (j *Log) Synced() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.synced
}

// Failure returns why nothing can be written any more, if so.
func (j *Log) Failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.err
}

// End returns the position after the last record.
func (j *Log) End() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.appended
}

// Size returns the length of the file, in bytes.
func (j *Log) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.size
}

// Hold keeps the file as it is, so that it can be copied, until release is called.
func (j *Log) Hold() (release func()) {
	j.writing.Lock()
	return j.writing.Unlock
}

// Close closes the file. What was not written is lost.
func (j *Log) Close() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.writing.Lock()
	defer j.writing.Unlock()
	j.closeMark()
	return j.file.Close()
}
