package mountpoint

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// A socket that is bound to a name of a mount keeps it busy, although the descriptor does
// not lead there. The kernel lists sockets with their names by network namespace, each
// with the number that the descriptor shows. A name that was relative when it was bound is
// taken to be so still.

// boundSockets are the names of bound sockets by their numbers, by network namespace.
type boundSockets map[string]map[string]string

// of returns the names of the namespace of the process at dir, /proc/PID.
func (b boundSockets) of(dir string) map[string]string {
	space, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return nil
	}
	names, known := b[space]
	if known {
		return names
	}
	names = make(map[string]string)
	b[space] = names
	f, err := os.Open(filepath.Join(dir, "net/unix"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// Num: RefCount Protocol Flags Type St Inode Path
		fields := strings.SplitN(strings.Join(strings.Fields(lines.Text()), " "), " ", 8)
		if len(fields) == 8 && !strings.HasPrefix(fields[7], "@") {
			names[fields[6]] = fields[7]
		}
	}
	return names
}

// in returns the name of m to which the descriptor of the process at dir with this target
// is bound, or "".
func (b boundSockets) in(m Mount, dir, target string) string {
	number, ok := strings.CutPrefix(target, "socket:[")
	if !ok {
		return ""
	}
	name := b.of(dir)[strings.TrimSuffix(number, "]")]
	if name == "" {
		return ""
	}
	if !filepath.IsAbs(name) {
		cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
		if err != nil {
			return ""
		}
		name = filepath.Join(cwd, name)
	}
	if name = filepath.Clean(name); !Within(m.Path, name) {
		return ""
	}
	return name
}
