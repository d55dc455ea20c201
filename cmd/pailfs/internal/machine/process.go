package machine

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WantedFiles is how many descriptors the daemon may need: one for every open
// file, cache file and connection.
const WantedFiles = 1 << 20

// PrepareProcess gives the process the surroundings of a file system's daemon. All
// of it is best effort: a daemon with fewer rights works with what it gets.
func PrepareProcess(log *slog.Logger) {
	// Modes are chosen where files are made; the caller's umask has no say.
	unix.Umask(0)
	// Neither the caller's directory nor its file system is kept busy.
	if err := os.Chdir("/"); err != nil {
		log.Warn("cannot leave the working directory", "error", err)
	}
	raiseFileLimit(log)
	lowerOOMScore(log)
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
	if limit.Cur >= WantedFiles {
		return
	}
	raised := unix.Rlimit{Cur: WantedFiles, Max: max(limit.Max, WantedFiles)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return
	}
	raised = unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil || raised.Cur < 4096 {
		log.Warn("the limit of open files is low", "limit", limit.Max, "wanted", WantedFiles)
	}
}

// HideMemory keeps other processes of the same user, and core dumps, from the
// keys in this process's memory. It makes /proc/self belong to root, so what
// writes there must come before.
func HideMemory() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// StartTicks returns when the process began, in the kernel's ticks since it
// started itself: with the pid it names a process for ever.
func StartTicks(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read start of process: %w", err)
	}
	// The second field, the name in brackets, may hold anything; the start is the
	// twenty-second.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const start = 22 - 3
	if len(fields) <= start {
		return 0, fmt.Errorf("read start of process %d: too few fields", pid)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return ticks, nil
}
