package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts say where a measurement was taken.
type Facts struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	// FileSystem is the type of the file system that holds the working directory.
	FileSystem string `json:"file_system"`
	// Commit is the source that was measured; Modified says that the tree differed
	// from it.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
}

// Look returns the facts of this machine, of the file system that holds dir, and
// of the git tree of the current directory.
func Look(dir string) (Facts, error) {
	f := Facts{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: cpuModel()}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Facts{}, fmt.Errorf("ask kernel version: %w", err)
	}
	f.Kernel = unix.ByteSliceToString(name.Release[:])
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Facts{}, fmt.Errorf("ask memory size: %w", err)
	}
	f.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	var err error
	if f.FileSystem, err = FileSystem(dir); err != nil {
		return Facts{}, err
	}
	f.Commit, f.Modified = commit()
	return f, nil
}

// FileSystem returns the type of the file system that holds dir, as mount(8)
// names it.
func FileSystem(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find file system: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("find file system: %w", err)
	}
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("find file system: %w", err)
	}
	return fileSystemOf(dir, string(b)), nil
}

// fileSystemOf finds dir in the text of /proc/self/mounts; of several mounts at
// one place the last one counts.
func fileSystemOf(dir, mounts string) string {
	kind, longest := "unknown", -1
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at := unescapeMount(fields[1])
		inside := at == "/" || dir == at || strings.HasPrefix(dir, at+"/")
		if inside && len(at) >= longest {
			kind, longest = fields[2], len(at)
		}
	}
	return kind
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func commit() (string, bool) {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown", false
	}
	status, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	return strings.TrimSpace(string(out)), err == nil && len(status) > 0
}

// Load is how many threads ran or wanted to run in the last minute.
func Load() (float64, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("read load: %w", err)
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("read load: %w", err)
	}
	return load, nil
}
