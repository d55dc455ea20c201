package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// memoryGroup is a cgroup that limits memory.
type memoryGroup struct {
	dir string
	// limit is the file with the limit.
	limit string
	// events is the file with the count of processes that were killed for want of memory.
	events string
}

// hierarchy is one of the two kinds of cgroups that limit memory.
type hierarchy struct {
	root string
	// controller is how /proc/self/cgroup begins the line of our own group.
	controller, limit, events string
	magic                     int64
	// delegated says that a group limits memory only if the one above it says so.
	delegated bool
}

func hierarchies() []hierarchy {
	return []hierarchy{
		{"/sys/fs/cgroup/memory", ":memory:", "memory.limit_in_bytes", "memory.oom_control", unix.CGROUP_SUPER_MAGIC, false},
		{"/sys/fs/cgroup", "0::", "memory.max", "memory.events", unix.CGROUP2_SUPER_MAGIC, true},
	}
}

// permits reports whether this machine lets root limit memory in a hierarchy: it is there, has the
// controller and can be written to.
func (h hierarchy) permits() bool {
	var st unix.Statfs_t
	if h.there() != nil || unix.Statfs(h.root, &st) != nil || st.Flags&unix.ST_RDONLY != 0 || unix.Access(h.root, unix.W_OK) != nil {
		return false
	}
	if !h.delegated || h.lists("cgroup.subtree_control", "memory") {
		return true
	}
	// Only the root of all hands on what limits it while processes are in it, and has no type.
	_, err := os.Stat(filepath.Join(h.root, "cgroup.type"))
	return h.lists("cgroup.controllers", "memory") && os.IsNotExist(err)
}

// there returns an error if the hierarchy is not mounted. In a plain directory of its name all
// could be written, and nothing would be limited.
func (h hierarchy) there() error {
	var st unix.Statfs_t
	if err := unix.Statfs(h.root, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", h.root, err)
	}
	if st.Type != h.magic {
		return fmt.Errorf("%s is not a hierarchy with %s", h.root, h.limit)
	}
	return nil
}

// lists reports whether a file of the hierarchy's root has a word.
func (h hierarchy) lists(file, word string) bool {
	text, err := os.ReadFile(filepath.Join(h.root, file))
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

// noMemoryGroup is why there is no cgroup. Permitted says that this machine could have one.
type noMemoryGroup struct {
	permitted bool
	refused   error
}

func (e *noMemoryGroup) Error() string {
	return fmt.Sprintf("make a cgroup that limits memory (this machine could have one: %t): %s", e.permitted, oneLine(e.refused.Error()))
}

// newMemoryGroup makes one of so many bytes with a process in it, or returns why not, a
// *noMemoryGroup. Where the group above does not hand the controller on, it is told to.
func newMemoryGroup(t *testing.T, limit int64, pid int) (*memoryGroup, error) {
	t.Helper()
	refused := &noMemoryGroup{}
	for _, h := range hierarchies() {
		if err := h.there(); err != nil {
			refused.refused = errors.Join(refused.refused, err)
			continue
		}
		refused.permitted = refused.permitted || h.permits()
		for _, parent := range []string{filepath.Join(h.root, ownGroup(h.controller)), h.root} {
			g := &memoryGroup{dir: filepath.Join(parent, fmt.Sprintf("pailfs-test-%d", os.Getpid()))}
			g.limit, g.events = filepath.Join(g.dir, h.limit), filepath.Join(g.dir, h.events)
			if err := os.Mkdir(g.dir, 0o755); err != nil {
				refused.refused = errors.Join(refused.refused, err)
				continue
			}
			if err := g.begin(h, limit, pid); err != nil {
				refused.refused = errors.Join(refused.refused, err, os.Remove(g.dir))
				continue
			}
			t.Cleanup(func() {
				until(func() bool { return !errors.Is(unix.Rmdir(g.dir), unix.EBUSY) })
			})
			return g, nil
		}
	}
	return nil, refused
}

// begin limits the group and brings a process into it.
func (g *memoryGroup) begin(h hierarchy, limit int64, pid int) error {
	write := func(path, what string) error { return os.WriteFile(path, []byte(what), 0o644) }
	_, err := os.Stat(g.limit)
	if h.delegated && err != nil {
		err = write(filepath.Join(g.dir, "../cgroup.subtree_control"), "+memory")
	}
	if err == nil {
		err = write(g.limit, strconv.FormatInt(limit, 10))
	}
	if err == nil {
		err = write(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid))
	}
	return err
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

// lift takes the limit away: more than there is.
func (g *memoryGroup) lift() error {
	return os.WriteFile(g.limit, []byte(strconv.FormatInt(1<<50, 10)), 0o644)
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

func TestAPlainDirectoryLimitsNoMemory(t *testing.T) {
	for _, h := range hierarchies() {
		h.root = t.TempDir()
		if err := h.there(); err == nil || h.permits() {
			t.Errorf("a plain directory was taken for a hierarchy with %s", h.limit)
		}
	}
}

// Where the machine permits a cgroup, rounds have one: without it they would pass for nothing.
func TestAMachineThatPermitsItHasAMemoryGroup(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group, err := newMemoryGroup(t, memoryTier, cmd.Process.Pid)
	if none := (*noMemoryGroup)(nil); errors.As(err, &none) && !none.permitted {
		fmt.Fprintf(os.Stderr, "LEFT OUT of %s: all of it: %v\n", t.Name(), err)
	} else if err != nil {
		t.Error(err)
	} else if err := group.lift(); err != nil {
		t.Error(err)
	} else if members, err := os.ReadFile(filepath.Join(group.dir, "cgroup.procs")); err != nil || strings.TrimSpace(string(members)) != strconv.Itoa(cmd.Process.Pid) {
		t.Errorf("in the group is %q (%v), want %d", members, err, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()         // by that signal
}
