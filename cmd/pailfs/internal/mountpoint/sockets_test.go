package mountpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBoundSocketsHoldTheMount looks at processes as /proc shows them.
func TestBoundSocketsHoldTheMount(t *testing.T) {
	const unixSockets = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01  101 /mnt/data/run/agent.sock
0000000000000000: 00000003 00000000 00000000 0001 03  102
0000000000000000: 00000002 00000000 00010000 0001 01  103 @/mnt/data/abstract
0000000000000000: 00000002 00000000 00010000 0001 01  104 run/a name
0000000000000000: 00000002 00000000 00010000 0001 01  105 /mnt/database/sock
0000000000000000: 00000002 00000000 00010000 0001 01  106 /mnt/data/../data/x
`
	proc := t.TempDir()
	m := Mount{Path: "/mnt/data"}
	sockets := make(boundSockets)
	for _, c := range []struct{ pid, socket, cwd, want string }{
		{"1", "101", "/", "bound socket /mnt/data/run/agent.sock"},
		{"2", "102", "/", ""},
		{"3", "103", "/", ""},
		{"4", "104", "/mnt/data/home", "working directory /mnt/data/home"},
		{"5", "105", "/", ""},
		{"6", "106", "/", "bound socket /mnt/data/x"},
		{"7", "107", "/", ""},
	} {
		dir := filepath.Join(proc, c.pid)
		for _, d := range []string{"fd", "ns", "net"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for link, target := range map[string]string{"fd/0": "/dev/null", "fd/3": "socket:[" + c.socket + "]", "ns/net": "net:[7]", "cwd": c.cwd} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "net/unix"), []byte(unixSockets), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := holds(dir, m, sockets); got != c.want {
			t.Errorf("process %s: %q, want %q", c.pid, got, c.want)
		}
	}
	if name := sockets.in(m, filepath.Join(proc, "4"), "socket:[104]"); name != "/mnt/data/home/run/a name" {
		t.Errorf("a relative name is %q", name)
	}
}
