package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SystemTime is the part of the processor time of process pid that it spent in the
// kernel, in steps of 10 ms.
func SystemTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return parseSystemTime(string(b))
}

// parseSystemTime reads the 15th field of /proc/PID/stat. The second one is a name
// in parentheses that may hold anything.
func parseSystemTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time: %q is not its line", stat)
	}
	ticks, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100
}

// Disk is what a disk has done since the machine started.
type Disk struct {
	// Busy is for how long it has had something to do.
	Busy time.Duration
	// ReadBytes is how much was read from it.
	ReadBytes int64
}

// DiskOf is what the disk that holds dir has done; nothing where that is not known, as of
// a file system without a disk.
func DiskOf(dir string) (Disk, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("find the disk of %q: %w", dir, err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if os.IsNotExist(err) {
		return Disk{}, nil
	}
	if err != nil {
		return Disk{}, fmt.Errorf("read what a disk has done: %w", err)
	}
	return parseDisk(string(b))
}

// parseDisk understands a block device's stat file: sectors of 512 bytes that were read
// are its third field, milliseconds of having something to do its tenth.
func parseDisk(stat string) (Disk, error) {
	fields := strings.Fields(stat)
	if len(fields) < 10 {
		return Disk{}, fmt.Errorf("read what a disk has done: %q is not its line", stat)
	}
	sectors, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return Disk{}, fmt.Errorf("read what a disk has done: %w", err)
	}
	ms, err := strconv.ParseInt(fields[9], 10, 64)
	if err != nil {
		return Disk{}, fmt.Errorf("read what a disk has done: %w", err)
	}
	return Disk{Busy: time.Duration(ms) * time.Millisecond, ReadBytes: 512 * sectors}, nil
}
