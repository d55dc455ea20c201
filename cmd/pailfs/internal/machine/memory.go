package machine

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns the bytes of memory that this process may use: the
// machine's, or less if a control group says so.
func Memory() (int64, error) {
	total, err := memTotal("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return min(total, cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup")), nil
}

// memTotal returns the machine's memory from the file at path, in the form of
// /proc/meminfo.
func memTotal(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read memory of the machine: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory of the machine: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory of the machine: %s has no MemTotal", path)
}

// cgroupLimit returns the least memory limit of the control groups that the file
// at path names, from the process's own up to the root of the tree under mount;
// the largest number if there is none. Version 1 and 2 are understood.
func cgroupLimit(path, mount string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return math.MaxInt64
	}
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		root, file := mount, "memory.max"
		if controllers := fields[1]; controllers != "" {
			if controllers != "memory" {
				continue
			}
			root, file = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		}
		for group := filepath.Clean(fields[2]); ; group = filepath.Dir(group) {
			text, err := os.ReadFile(filepath.Join(root, group, file))
			if n, convErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && convErr == nil {
				limit = min(limit, n)
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return limit
}
