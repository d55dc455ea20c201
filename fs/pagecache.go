package fs

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// A file that is whole on SSD has two page caches: that of the mount, which READs fill,
// and that of the cache's file, which passthrough reads. The cache writes large extents
// past the page cache, so after a first reading the mount has all of the file and the
// cache's file nothing. An open in passthrough makes the kernel drop what the mount has,
// and would read all of it from the disk again.
//
// So a file that is read again stays cached as long as the mount has more of it, and
// goes to passthrough as soon as that costs no disk.

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
	// bringAfter is how often a file must have been read from the mount's pages alone
	// before its cache file is brought into memory.
	bringAfter = 2
	// bringFree is the part of the memory, one in bringFree, that stays free then.
	bringFree = 8
)

// pageCache is what is known of the kernel's page cache. Tests put another in its place.
type pageCache struct {
	// resident returns how many bytes of a file are in memory, or more than it has if
	// that cannot be known.
	resident func(file *os.File) int64
	// reclaimed returns the kernel's counters; false if they cannot be read.
	reclaimed func() (reclaimed, bool)
	// memory returns how much memory there is, and how much of it nobody uses.
	memory func() (total, free int64)
}

// reclaimed counts what the kernel took from page caches since the machine started.
type reclaimed struct {
	pages uint64 // to use them for something else
	drops uint64 // demands to drop all
}

var kernelPages = pageCache{resident: residentBytes, reclaimed: reclaimedPages, memory: cache.SystemMemory}

// residentBytes asks the kernel how much of file is in memory (Linux 6.5).
func residentBytes(file *os.File) int64 {
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
		return 1<<63 - 1
	}
	return int64(st.Cache) * int64(os.Getpagesize())
}

// reclaimedPages reads /proc/vmstat.
func reclaimedPages() (r reclaimed, ok bool) {
	stat, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return r, false
	}
	return parseReclaimed(stat)
}

func parseReclaimed(stat []byte) (r reclaimed, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		n, err := strconv.ParseUint(string(value), 10, 64)
		switch {
		case err != nil:
		case string(name) == "drop_pagecache":
			r.drops = n
		case string(name) == "pgsteal_file":
			r.pages, ok = n, true
		}
	}
	return r, ok
}

// heldPages is what the mount's page cache has of an inode, as far as READs tell.
type heldPages struct {
	version oss.Object
	// filled counts the bytes of READs since the pages were dropped last, and span those
	// of the present open, or of the last one.
	filled, span int64
	// mark is what the kernel had reclaimed when the last READ before the last close had
	// been answered, if marked.
	mark   reclaimed
	marked bool
	// stayed says that the present open was cached although the file is whole, again how
	// often such an open found its pages, and brought that the cache's file was asked for.
	stayed  bool
	again   int
	brought bool
}

// add notes a READ of n bytes of version, which the kernel keeps.
func (h *heldPages) add(version oss.Object, n int64) {
	if h.version != version {
		*h = heldPages{version: version}
	}
	h.filled, h.span = h.filled+n, h.span+n
}

// fills notes that READ returned bytes of n, which the kernel keeps unless the reader asked for
// direct input.
func (f *filesystem) fills(n *inode, version oss.Object, bytes int64, flags uint32) {
	if flags&unix.O_DIRECT != 0 || !f.passthrough.wants(version.Size) {
		return
	}
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.mu.held.add(version, bytes)
}

// stays tells whether n, which is whole in file, is read cached once more because the
// mount's page cache has more of it than that of file. The caller holds st.mu.
func (f *filesystem) stays(n *inode, st *fileState, file *os.File) bool {
	version, _ := n.version()
	h := &st.mu.held
	if h.version != version || n.damaged.Load() || !f.holds(h) || f.pages.resident(file) >= min(h.filled, version.Size) {
		*h = heldPages{version: version} // the open in passthrough drops what there is
		return false
	}
	h.stayed = true
	return true
}

// holds tells whether the pages that READs filled are likely to be there still.
func (f *filesystem) holds(h *heldPages) bool {
	size := h.version.Size
	if h.filled < size/heldShare || h.filled > size+size/rereadShare || !h.marked {
		return false
	}
	total, _ := f.pages.memory()
	now, ok := f.pages.reclaimed()
	return ok && size <= total/heldMemory && now.drops == h.mark.drops &&
		int64(now.pages-h.mark.pages)*int64(os.Getpagesize()) <= total/reclaimShare
}

// leaves notes that nobody has the inode open any more, and tells whether its cache file
// is to be brought into memory: it is read again and again. The caller holds st.mu.
func (f *filesystem) leaves(h *heldPages) (bring bool) {
	if h.filled == 0 {
		return false
	}
	if h.span > 0 || !h.marked {
		h.mark, h.marked = f.pages.reclaimed()
	}
	if h.stayed && h.span <= h.version.Size/rereadShare {
		h.again++
	}
	h.stayed, h.span = false, 0
	if h.again < bringAfter || h.brought {
		return false
	}
	h.brought = true
	return true
}

// bringing brings files of the cache into the page cache, one after another.
type bringing struct{ queue chan oss.Object }

// bringMost is how many files may wait for it. Others are left out.
const bringMost = 16

// add has a version brought into memory.
func (b *bringing) add(version oss.Object) {
	select {
	case b.queue <- version:
	default:
	}
}

// run brings what is added until ctx ends.
func (b *bringing) run(ctx context.Context, f *filesystem) {
	for {
		select {
		case <-ctx.Done():
			return
		case version := <-b.queue:
			if err := f.bringIn(ctx, version); err != nil {
				f.log.Info("a file that is read again and again stays out of passthrough", "key", version.Key, "err", err)
			}
		}
	}
}

// bringIn reads the cache's file of a version, unless memory is wanted for other things.
// Nobody waits for it.
func (f *filesystem) bringIn(ctx context.Context, version oss.Object) error {
	h, err := f.cache.Open(version)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // a handle that is closed once
	file, ok := h.WholeFile()
	if !ok {
		return nil
	}
	buf := make([]byte, largestRead())
	for off := int64(0); off < version.Size && ctx.Err() == nil; off += int64(len(buf)) {
		if _, ok := h.WholeFile(); !ok {
			return nil // a writer has it, and nobody else may hold it open
		}
		if total, free := f.pages.memory(); free < total/bringFree+version.Size-off {
			return nil
		}
		if _, err := file.ReadAt(buf[:min(int64(len(buf)), version.Size-off)], off); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}
