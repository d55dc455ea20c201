package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the processor time that process pid has used, all its threads
// together, user and system.
func CPUTime(pid int) (time.Duration, error) {
	// The kernel's encoding of "processor clock of that process" (see
	// clock_getcpuclockid(3)); /proc/PID/stat counts in steps of 10 ms only.
	clock := int32((^uint32(pid))<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("ask processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Memory is the resident memory of a process.
type Memory struct {
	// PeakBytes is the most since the process began, or since ResetPeak.
	PeakBytes int64
	// NowBytes is the present size, AnonBytes the part of it that is no file.
	NowBytes, AnonBytes int64
}

// MemoryOf reads the memory of process pid.
func MemoryOf(pid int) (Memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	m, err := parseMemory(string(b))
	if err != nil {
		return Memory{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return m, nil
}

func parseMemory(status string) (Memory, error) {
	var m Memory
	found := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		var into *int64
		switch name {
		case "VmHWM":
			into = &m.PeakBytes
		case "VmRSS":
			into = &m.NowBytes
		case "RssAnon":
			into = &m.AnonBytes
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Memory{}, err
		}
		*into = kib << 10
		found++
	}
	if found != 3 {
		return Memory{}, errors.New("a line is missing")
	}
	return m, nil
}

// ResetPeak makes the present resident size of process pid its peak.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200); err != nil {
		return fmt.Errorf("reset peak memory of process %d: %w", pid, err)
	}
	return nil
}

// BusyTime is the processor time that the whole machine has used since it
// started, idle and waiting for disks left out. Its step is 10 ms.
func BusyTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return parseBusy(line)
}

// parseBusy adds up the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq and steal. What the hypervisor took counts as busy:
// nobody here could use it.
func parseBusy(line string) (time.Duration, error) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read processor time: %q is not its line", line)
	}
	var ticks int64
	for i, field := range fields[1:9] {
		if i == 3 || i == 4 {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		ticks += n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Duration(ticks) * tick, nil
}
