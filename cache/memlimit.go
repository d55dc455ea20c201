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
	limit := memInfo(filepath.Join(root, "proc/meminfo"), "MemTotal:")
	if group := cgroupLimit(root); group > 0 && (limit == 0 || group < limit) {
		limit = group
	}
	return min(max(limit/memoryShare, minMemory), maxDefaultMemory)
}

// memInfo returns a figure about the memory of the machine in bytes, or 0.
func memInfo(meminfo, name string) int64 {
	content, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(content) {
		if f := strings.Fields(string(line)); len(f) >= 2 && f[0] == name {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// SystemMemory returns how much memory the machine has, or our control group if that may
// use less, and how much of it nobody uses, not even as page cache. Both are 0 where that
// cannot be known.
func SystemMemory() (total, free int64) { return systemMemory("/") }

func systemMemory(root string) (total, free int64) {
	meminfo := filepath.Join(root, "proc/meminfo")
	total, free = memInfo(meminfo, "MemTotal:"), memInfo(meminfo, "MemFree:")
	eachCgroup(root, func(limit, used int64) {
		total, free = min(total, limit), min(free, limit-used)
	})
	return total, max(free, 0)
}

// cgroupLimit returns the least limit on the memory of our control group and of
// those it is in, or 0 if there is none.
func cgroupLimit(root string) (least int64) {
	eachCgroup(root, func(limit, _ int64) {
		if least == 0 || limit < least {
			least = limit
		}
	})
	return least
}

// eachCgroup visits our control group and those it is in, as far as their memory is
// limited. Both versions of cgroups are understood; in a container the group's own
// directory may be the root of what can be seen.
func eachCgroup(root string, visit func(limit, used int64)) {
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// hierarchy:controllers:path
		part := strings.SplitN(lines.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		mount, limit, used := "sys/fs/cgroup", "memory.max", "memory.current"
		switch {
		case part[0] == "0" && part[1] == "":
		case strings.Contains(","+part[1]+",", ",memory,"):
			mount, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		default:
			continue
		}
		for dir := filepath.Clean("/" + part[2]); ; dir = filepath.Dir(dir) {
			if n := readLimit(filepath.Join(root, mount, dir, limit)); n > 0 {
				visit(n, readLimit(filepath.Join(root, mount, dir, used)))
			}
			if dir == "/" {
				break
			}
		}
	}
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
