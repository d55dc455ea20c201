package systemtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// memoryGroup is a cgroup that limits memory.
type memoryGroup struct {
	dir string
	// events is the file with the count of processes that were killed for want of memory.
	events string
}

// newMemoryGroup makes one of so many bytes, or returns why this machine does not let it.
func newMemoryGroup(t *testing.T, limit int64) (*memoryGroup, error) {
	t.Helper()
	var refused []error
	for _, v := range []struct{ root, controller, limit, events string }{
		{"/sys/fs/cgroup/memory", ":memory:", "memory.limit_in_bytes", "memory.oom_control"},
		{"/sys/fs/cgroup", "0::", "memory.max", "memory.events"},
	} {
		for _, parent := range []string{filepath.Join(v.root, ownGroup(v.controller)), v.root} {
			g := &memoryGroup{dir: filepath.Join(parent, fmt.Sprintf("pailfs-test-%d", os.Getpid()))}
			g.events = filepath.Join(g.dir, v.events)
			if err := os.Mkdir(g.dir, 0o755); err != nil {
				refused = append(refused, err)
				continue
			}
			if err := os.WriteFile(filepath.Join(g.dir, v.limit), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
				refused = append(refused, err, os.Remove(g.dir))
				continue
			}
			t.Cleanup(func() {
				until(func() bool { return !errors.Is(unix.Rmdir(g.dir), unix.EBUSY) })
			})
			return g, nil
		}
	}
	return nil, errors.Join(refused...)
}

// ownGroup is the path of our own cgroup in the hierarchy of a controller.
func ownGroup(controller string) string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if _, path, ok := strings.Cut(line, controller); ok {
			return strings.TrimSpace(path)
		}
	}
	return ""
}

// add brings a process into the group.
func (g *memoryGroup) add(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// killed is how many processes of it were killed for want of memory.
func (g *memoryGroup) killed() int {
	text, err := os.ReadFile(g.events)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			killed, err := strconv.Atoi(strings.TrimSpace(n))
			if err == nil {
				return killed
			}
		}
	}
	return 0
}
