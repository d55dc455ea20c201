package fs

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pages tells whether the machine took pages from the kernel's cache. It may at any
// time, and one that gives unused memory back does so every few seconds.
type pages struct {
	counters []byte
	lost     bool
}

// look notes whether pages of the files or directories were taken.
func (p *pages) look(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		var st unix.Cachestat_t
		// A kernel without the call leaves it to the counters.
		if unix.Cachestat(uint(fd), &unix.CachestatRange{}, &st, 0) == nil && st.Evicted > 0 {
			p.lost = true
		}
		closeFD(t, fd)
	}
}

// taken reports whether pages were taken of what was looked at, or of anything on
// the machine and then read anew, or all of them on demand. What the daemon makes
// the kernel drop is no such thing.
func (p *pages) taken(t testing.TB) bool {
	t.Helper()
	return p.lost || !bytes.Equal(p.counters, reclaimCounters(t))
}

// reclaimCounters returns the lines of vmstat that count pages which were read anew
// after they were taken, and demands to drop all.
func reclaimCounters(t testing.TB) []byte {
	t.Helper()
	// Each processor counts for itself, and adds it up now; root alone may ask for it.
	_, _ = os.ReadFile("/proc/sys/vm/stat_refresh")
	stat, err := os.ReadFile("/proc/vmstat")
	must(t, err)
	var found []byte
	for line := range bytes.Lines(stat) {
		if bytes.HasPrefix(line, []byte("workingset_refault_file ")) || bytes.HasPrefix(line, []byte("drop_")) {
			found = append(found, line...)
		}
	}
	return found
}

// untilUndisturbed runs trials of what the kernel keeps, each on a mount of its own.
// A trial returns what it found wrong. If pages were taken meanwhile that proves
// nothing, and the next one follows.
func untilUndisturbed(t *testing.T, trial func(t *testing.T, p *pages) (wrong string)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		var wrong string
		disturbed := false
		t.Run("trial", func(t *testing.T) {
			p := &pages{counters: reclaimCounters(t)}
			wrong = trial(t, p)
			disturbed = p.taken(t)
		})
		switch {
		case wrong == "" || t.Failed():
			return
		case !disturbed:
			t.Fatal(wrong)
		case time.Now().After(deadline):
			t.Fatalf("%s, and the machine took pages in every trial", wrong)
		}
		t.Logf("%s; the machine took pages meanwhile", wrong)
	}
}
