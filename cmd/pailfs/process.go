package main

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// wantedFiles is how many descriptors the daemon may need: one for every open
// file, cache file and connection.
const wantedFiles = 1 << 20

// prepareProcess gives the process the surroundings of a file system's daemon. All
// of it is best effort: a daemon with fewer rights works with what it gets.
func prepareProcess(memory config.Size, log *slog.Logger) {
	// Modes are chosen where files are made; the caller's umask has no say.
	unix.Umask(0)
	// Neither the caller's directory nor its file system is kept busy.
	if err := os.Chdir("/"); err != nil {
		log.Warn("cannot leave the working directory", "error", err)
	}
	raiseFileLimit(log)
	lowerOOMScore(log)
	limitHeap(int64(memory))
	raiseGOMAXPROCS()
}

// lowerOOMScore asks the kernel to end a reader, when memory runs out, rather than
// the file system of all of them. A value that somebody chose stays.
func lowerOOMScore(log *slog.Logger) {
	const score = "/proc/self/oom_score_adj"
	if text, err := os.ReadFile(score); err == nil && strings.TrimSpace(string(text)) == "0" {
		if err := os.WriteFile(score, []byte("-500"), 0); err != nil {
			log.Debug("cannot lower the OOM score", "error", err)
		}
	}
}

// fewestAtOnce is how many threads of the daemon may run Go code at once, at least.
const fewestAtOnce = 4

// raiseGOMAXPROCS lets the daemon of a small machine, or of a control group with few
// processors, answer more requests at once than that has processors. Most of a
// request is a system call, which keeps its place among those who may run while it
// waits for the disk. GOMAXPROCS, if set, wins. Where it is raised, the runtime no
// longer follows a control group whose limit changes.
func raiseGOMAXPROCS() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < fewestAtOnce {
		runtime.GOMAXPROCS(fewestAtOnce)
	}
}

// raiseFileLimit raises the limit of open files as far as this user may.
func raiseFileLimit(log *slog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("cannot read the limit of open files", "error", err)
		return
	}
	if limit.Cur >= wantedFiles {
		return
	}
	raised := unix.Rlimit{Cur: wantedFiles, Max: max(limit.Max, wantedFiles)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return
	}
	raised = unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil || raised.Cur < 4096 {
		log.Warn("the limit of open files is low", "limit", limit.Max, "wanted", wantedFiles)
	}
}

// limitHeap keeps Go's own heap small beside the memory tier, whose buffers lie
// outside it: collecting at half of growth costs little for a heap of some tens
// of megabytes and is what keeps the daemon near the size of its memory tier. The
// soft limit makes the collector work harder before a control group kills.
// GOGC and GOMEMLIMIT, if set, win.
func limitHeap(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	available, err := machineMemory()
	if err != nil {
		return
	}
	if memory == 0 {
		memory = available / 8 // as the cache chooses, or more
	}
	debug.SetMemoryLimit(max(available/10*9-memory, 256<<20))
}

// hideMemory keeps other processes of the same user, and core dumps, from the
// keys in this process's memory. It makes /proc/self belong to root, so what
// writes there must come before.
func hideMemory() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
