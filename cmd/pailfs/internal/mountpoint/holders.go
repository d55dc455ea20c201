package mountpoint

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Holder is a process that keeps a mount busy.
type Holder struct {
	PID int
	// Name is the process's command name.
	Name string
	// How says by what: "working directory", "open file", "mapped file", "bound socket",
	// "program" or "root directory", with a path.
	How string
}

// String returns the holder as one item of a list.
func (h Holder) String() string { return fmt.Sprintf("%s (pid %d, %s)", h.Name, h.PID, h.How) }

// Holders returns the processes that hold m, as far as this user may see them,
// each once. It reads /proc alone and never touches the mount.
func Holders(m Mount) []Holder {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is right
	}
	var holders []Holder
	sockets := make(boundSockets)
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if how := holds(dir, m, sockets); how != "" {
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // it may have ended
			holders = append(holders, Holder{PID: pid, Name: strings.TrimSpace(string(name)), How: how})
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	return holders
}

// holds returns by what the process at /proc/PID holds m, or "".
func holds(dir string, m Mount, sockets boundSockets) string {
	for _, link := range []struct{ name, how string }{
		{"cwd", "working directory"},
		{"root", "root directory"},
		{"exe", "program"},
	} {
		if target, err := os.Readlink(filepath.Join(dir, link.name)); err == nil && Within(m.Path, target) {
			return link.how + " " + target
		}
	}
	if files, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		for _, f := range files {
			target, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
			if err == nil && Within(m.Path, target) {
				return "open file " + target
			}
			if name := sockets.in(m, dir, target); name != "" {
				return "bound socket " + name
			}
		}
	}
	return mapped(filepath.Join(dir, "maps"), m)
}

// mapped returns how the address space described by the file at path holds m,
// or "". A mapping outlives the descriptor that it was made from.
func mapped(path string, m Mount) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	device := fmt.Sprintf("%02x:%02x", m.Major, m.Minor)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// address perms offset device inode path
		if fields := strings.Fields(lines.Text()); len(fields) > 5 && fields[3] == device {
			return "mapped file " + strings.Join(fields[5:], " ")
		}
	}
	return ""
}

// Within reports whether path is dir or lies below it. Both are clean.
func Within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
