package journal

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// syncedName is the file that says how much of the journal is on the disk.
const syncedName = "journal.synced"

// pageSize is at least a page of the kernel's memory, in bytes: what is written again
// begins with one, since that is what a flush takes or loses.
const pageSize = 64 << 10

// A mark says that the first bytes of a journal are on the disk. It need not be there itself:
// it only counts until the machine is started again.
type mark struct {
	// boot is the run of the machine in which this was so, journal the inode of the file.
	boot    string
	journal uint64
	// synced is how many bytes of it were brought to the disk.
	synced int64
}

// text returns m as it stands in the file: one line, of the same length for the same boot,
// so that a later one takes its place in one write.
func (m mark) text() string {
	said := fmt.Sprintf("%s %016x %016x", m.boot, m.journal, m.synced)
	return fmt.Sprintf("%s %08x\n", said, crc32.Checksum([]byte(said), castagnoli))
}

// readMark returns the mark of dir; ok is false if there is none.
func readMark(dir string) (m mark, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, syncedName))
	if err != nil {
		return mark{}, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if _, err := fmt.Sscanf(line, "%s %x %x", &m.boot, &m.journal, &m.synced); err != nil || m.text() != line+"\n" {
		return mark{}, false
	}
	return m, true
}

// forgetMark makes what is in the journal of dir nothing that is known to be on the disk.
func forgetMark(dir string) {
	os.Remove(filepath.Join(dir, syncedName))
}

// closeMark closes the file of the mark. The caller holds j.syncing.
func (j *Log) closeMark() {
	if j.mark != nil {
		j.mark.Close() //nolint:errcheck // what it says need not be on the disk
		j.mark = nil
	}
}

// inode returns that of a file, 0 if it cannot be told.
func inode(file *os.File) uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return 0
	}
	return st.Ino
}

// note says that the first synced bytes of the file are on the disk. The caller holds
// j.syncing. Where that cannot be said the next run writes all of the journal again.
func (j *Log) note(synced int64) {
	var err error
	if j.mark == nil {
		j.mark, err = os.OpenFile(filepath.Join(j.dir, syncedName), os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err == nil {
		_, err = j.mark.WriteAt([]byte(mark{j.boot, inode(j.file), synced}.text()), 0)
	}
	if err != nil {
		forgetMark(j.dir)
	}
}

// writeAgain writes once more what an earlier run has written of the good bytes since the
// machine was started, and is not known to have brought to the disk. After a flush that failed
// the kernel takes the pages to be on the disk, and a later flush succeeds without them.
func (j *Log) writeAgain(good int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	from := int64(0)
	if m, ok := readMark(j.dir); ok {
		switch {
		case m.boot != j.boot:
			// Nobody has written to it since: what is read comes from the disk.
			from = good
		case m.journal == inode(j.file) && m.synced <= good:
			from = m.synced
		}
	}
	// From now on that is what is known.
	j.note(from)
	if from == good {
		return nil
	}
	b := make([]byte, 1<<20)
	for at := from - from%pageSize; at < good; {
		n, err := j.file.ReadAt(b[:min(int64(len(b)), good-at)], at)
		if n == 0 && err == nil {
			err = io.ErrUnexpectedEOF
		}
		if n == 0 {
			return fmt.Errorf("read journal: %w", err)
		}
		if err := j.disk.WriteAt(j.file, b[:n], at); err != nil {
			return fmt.Errorf("write journal again: %w", err)
		}
		at += int64(n)
	}
	return nil
}
