package pagecache

import (
	"bufio"
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

const (
	// heldShare is the part of a file, one in heldShare, that the mount must have for its
	// pages to count; what it lacks comes through the daemon.
	heldShare = 2
	// rereadShare bounds the READs of a file that is said to be held, one byte in
	// rereadShare: more means that its pages went and were asked for again.
	rereadShare = 8
	// heldMemory is the part of the memory, one in heldMemory, that a file may have to be
	// held. A larger one has pushed out its own beginning when its end is read.
	heldMemory = 2
	// reclaimShare is the part of the memory, one in reclaimShare, that the kernel may
	// have reclaimed since the file was read: it takes the oldest pages first.
	reclaimShare = 8
	// BringAfter is how often a file must have been read from the mount's pages alone
	// before its cache file is brought into memory.
	BringAfter = 2
	// BringFree is the part of the memory, one in BringFree, that stays free then.
	BringFree = 8
)

// Pages is what is known of the kernel's page cache. Tests put another in its place.
type Pages struct {
	// Resident returns how many bytes of a file are in memory, or more than it has if
	// that cannot be known.
	Resident func(file *os.File) int64
	// Reclaimed returns the kernel's counters; false if they cannot be read.
	Reclaimed func() (Reclaimed, bool)
	// Memory returns how much memory there is, and how much of it nobody uses.
	Memory func() (total, free int64)
}

// Reclaimed counts what the kernel took from page caches since the machine started.
type Reclaimed struct {
	Pages uint64 // to use them for something else
	Drops uint64 // demands to drop all
}

// Kernel asks the kernel.
var Kernel = Pages{Resident: Resident, Reclaimed: reclaimedPages, Memory: cache.SystemMemory}

// Resident asks the kernel how much of file is in memory (Linux 6.5).
func Resident(file *os.File) int64 {
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
		return 1<<63 - 1
	}
	return int64(st.Cache) * int64(os.Getpagesize())
}

// reclaimedPages reads /proc/vmstat.
func reclaimedPages() (r Reclaimed, ok bool) {
	stat, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return r, false
	}
	return parseReclaimed(stat)
}

func parseReclaimed(stat []byte) (r Reclaimed, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		n, err := strconv.ParseUint(string(value), 10, 64)
		switch {
		case err != nil:
		case string(name) == "drop_pagecache":
			r.Drops = n
		case string(name) == "pgsteal_file":
			r.Pages, ok = n, true
		}
	}
	return r, ok
}

// Held is what the mount's page cache has of an inode, as far as READs tell.
type Held struct {
	Version oss.Object
	// Filled counts the bytes of READs since the pages were dropped last, and span those
	// of the present open, or of the last one.
	Filled, span int64
	// mark is what the kernel had reclaimed when the last READ before the last close had
	// been answered, if marked.
	mark   Reclaimed
	marked bool
	// stayed says that the present open was cached although the file is whole, again how
	// often such an open found its pages, and brought that the cache's file was asked for.
	stayed  bool
	again   int
	Brought bool
}

// Add notes a READ of n bytes of version, which the kernel keeps.
func (h *Held) Add(version oss.Object, n int64) {
	if h.Version != version {
		*h = Held{Version: version}
	}
	h.Filled, h.span = h.Filled+n, h.span+n
}

// Stays tells whether a version, which is whole in file, is read cached once more because
// the mount's page cache has more of it than that of file, and nothing that is damaged.
func (c *Pages) Stays(h *Held, version oss.Object, file *os.File, damaged bool) bool {
	if h.Version != version || damaged || !c.holds(h) || c.Resident(file) >= min(h.Filled, version.Size) {
		*h = Held{Version: version} // the open in passthrough drops what there is
		return false
	}
	h.stayed = true
	return true
}

// holds tells whether the pages that READs filled are likely to be there still.
func (c *Pages) holds(h *Held) bool {
	size := h.Version.Size
	if h.Filled < size/heldShare || h.Filled > size+size/rereadShare || !h.marked {
		return false
	}
	total, _ := c.Memory()
	now, ok := c.Reclaimed()
	return ok && size <= total/heldMemory && now.Drops == h.mark.Drops &&
		int64(now.Pages-h.mark.Pages)*int64(os.Getpagesize()) <= total/reclaimShare
}

// Leaves notes that nobody has the inode open any more, and tells whether its cache file
// is to be brought into memory: it is read again and again.
func (c *Pages) Leaves(h *Held) (bring bool) {
	if h.Filled == 0 {
		return false
	}
	if h.span > 0 || !h.marked {
		h.mark, h.marked = c.Reclaimed()
	}
	if h.stayed && h.span <= h.Version.Size/rereadShare {
		h.again++
	}
	h.stayed, h.span = false, 0
	if h.again < BringAfter || h.Brought {
		return false
	}
	h.Brought = true
	return true
}
