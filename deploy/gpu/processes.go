package gpu

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// pailfsTypes are the types under which mountinfo shows a pailfs mount.
var pailfsTypes = []string{"fuse.pailfs"}

// table is /proc as it was at one time.
type table struct {
	root     string
	children map[int][]int
}

// readTable lists the processes with their parents. Those that end meanwhile are
// left out.
func readTable(root string) table {
	t := table{root: root, children: make(map[int][]int)}
	entries, err := os.ReadDir(root)
	if err != nil {
		return t
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := t.parent(pid); ok {
			t.children[parent] = append(t.children[parent], pid)
		}
	}
	return t
}

// parent reads the fourth field of stat, which stands behind a name in brackets
// that may hold anything.
func (t table) parent(pid int) (int, bool) {
	b, err := os.ReadFile(t.file(pid, "stat"))
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(") "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

func (t table) file(pid int, path ...string) string {
	return filepath.Join(append([]string{t.root, strconv.Itoa(pid)}, path...)...)
}

// describe fills in what /proc knows of p.
func (t table) describe(p *Process) {
	if b, err := os.ReadFile(t.file(p.PID, "comm")); err == nil {
		p.Name = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile(t.file(p.PID, "status")); err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
				if f := strings.Fields(rest); len(f) > 1 {
					uid, _ := strconv.ParseUint(f[1], 10, 32) // the kernel's own number
					p.UID = uint32(uid)
				}
			}
		}
	}
	p.Mounts = t.mounts(p.PID)
}

// mounts returns the pailfs mounts that pid or a descendant has something open in.
// It asks by mount id and by name, never by stat: a mount whose daemon hangs would
// hang whoever asks.
func (t table) mounts(pid int) []string {
	var found []string
	seen := make(map[int]bool)
	family := []int{pid}
	for len(family) > 0 {
		member := family[0]
		family = family[1:]
		if seen[member] {
			continue
		}
		seen[member] = true
		family = append(family, t.children[member]...)
		found = append(found, t.mountsOf(member)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// mountsOf returns the pailfs mounts that one process uses.
func (t table) mountsOf(pid int) []string {
	b, err := os.ReadFile(t.file(pid, "mountinfo"))
	if err != nil {
		return nil
	}
	mounts := pailfsMounts(b)
	if len(mounts) == 0 {
		return nil
	}
	used := make(map[string]bool)
	entries, _ := os.ReadDir(t.file(pid, "fdinfo")) // gone or not ours: nothing is seen
	for _, e := range entries {
		if b, err := os.ReadFile(t.file(pid, "fdinfo", e.Name())); err == nil {
			if at, ok := mounts[mountID(b)]; ok {
				used[at] = true
			}
		}
	}
	within := func(path string) {
		for _, at := range mounts {
			if path == at || strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/") {
				used[at] = true
			}
		}
	}
	if cwd, err := os.Readlink(t.file(pid, "cwd")); err == nil {
		within(cwd)
	}
	if maps, err := os.Open(t.file(pid, "maps")); err == nil {
		lines := bufio.NewScanner(maps)
		for lines.Scan() {
			if _, path, ok := strings.Cut(lines.Text(), " /"); ok {
				within("/" + path)
			}
		}
		_ = maps.Close() // it was only read
	}
	var list []string
	for at := range used {
		list = append(list, at)
	}
	return list
}

// pailfsMounts returns the mount points of pailfs in a mountinfo by mount id.
func pailfsMounts(table []byte) map[int]string {
	mounts := make(map[int]string)
	found, err := mountinfo.GetMountsFromReader(bytes.NewReader(table), mountinfo.FSTypeFilter(pailfsTypes...))
	if err != nil {
		return nil // gone meanwhile
	}
	for _, m := range found {
		mounts[m.ID] = m.Mountpoint
	}
	return mounts
}

// mountID returns the mount id in an fdinfo, -1 if there is none.
func mountID(fdinfo []byte) int {
	for line := range strings.Lines(string(fdinfo)) {
		if rest, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			if id, err := strconv.Atoi(strings.TrimSpace(rest)); err == nil {
				return id
			}
		}
	}
	return -1
}
