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

// DiskBusy is for how long the disk that holds dir has had something to do since the
// machine started; 0 where that is not known, as of a file system without a disk.
func DiskBusy(dir string) (time.Duration, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("find the disk of %q: %w", dir, err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how busy a disk is: %w", err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 10 {
		return 0, fmt.Errorf("read how busy a disk is: %q is not its line", b)
	}
	ms, err := strconv.ParseInt(fields[9], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read how busy a disk is: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
