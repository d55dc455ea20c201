package cache

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// memoryShare is the part of all memory that the cache takes by default: the
	// rest is for the page cache, which holds the same files, and for the work that
	// reads them.
	memoryShare = 8
	// maxDefaultMemory bounds the default: beyond it the memory tier gains less than
	// the page cache.
	maxDefaultMemory = 4 << 30
)

// defaultMemory returns the budget where none was configured.
func defaultMemory(root string) int64 {
	limit := memTotal(filepath.Join(root, "proc/meminfo"))
	if group := cgroupLimit(root); group > 0 && (limit == 0 || group < limit) {
		limit = group
	}
	return min(max(limit/memoryShare, minMemory), maxDefaultMemory)
}

// memTotal returns the memory of the machine, or 0.
func memTotal(meminfo string) int64 {
	content, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(content) {
		if f := strings.Fields(string(line)); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// cgroupLimit returns the least limit on the memory of our control group and of
// those it is in, or 0 if there is none. Both versions of cgroups are understood;
// in a container the group's own directory may be the root of what can be seen.
func cgroupLimit(root string) int64 {
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	defer f.Close()
	least := int64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// hierarchy:controllers:path
		part := strings.SplitN(lines.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		mount, name := "sys/fs/cgroup", "memory.max"
		switch {
		case part[0] == "0" && part[1] == "":
		case strings.Contains(","+part[1]+",", ",memory,"):
			mount, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := filepath.Clean("/" + part[2]); ; dir = filepath.Dir(dir) {
			if n := readLimit(filepath.Join(root, mount, dir, name)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// readLimit returns the number in a file, or 0 if there is none. Version 1 says
// that there is no limit with a number near the largest.
func readLimit(name string) int64 {
	content, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || n >= 1<<60 {
		return 0
	}
	return n
}
