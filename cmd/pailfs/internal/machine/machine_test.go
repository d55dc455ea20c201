package machine

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// files writes files below a new directory and returns it.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLeastLimitOfTheControlGroupsCounts(t *testing.T) {
	for name, c := range map[string]struct {
		content map[string]string
		want    int64
	}{
		"version 2, parent is narrower": {map[string]string{
			"cgroup": "0::/a/b\n", "fs/a/b/memory.max": "4096\n", "fs/a/memory.max": "1024\n", "fs/memory.max": "max\n",
		}, 1024},
		"version 2, own is narrower":     {map[string]string{"cgroup": "0::/a/b\n", "fs/a/b/memory.max": "512\n", "fs/a/memory.max": "1024\n"}, 512},
		"version 2, root of a container": {map[string]string{"cgroup": "0::/\n", "fs/memory.max": "2048\n"}, 2048},
		"version 1": {map[string]string{
			"cgroup": "9:cpu:/c\n4:memory:/m\n0::/\n", "fs/memory/m/memory.limit_in_bytes": "8192\n", "fs/c/memory.max": "1\n",
		}, 8192},
		"no limit": {map[string]string{"cgroup": "0::/a\n", "fs/a/memory.max": "max\n"}, math.MaxInt64},
		"nothing":  {nil, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, c.content)
			if got := cgroupLimit(filepath.Join(dir, "cgroup"), filepath.Join(dir, "fs")); got != c.want {
				t.Errorf("limit %d, want %d", got, c.want)
			}
		})
	}
}

func TestMachineMemoryIsRead(t *testing.T) {
	dir := files(t, map[string]string{"meminfo": "MemTotal:       24576 kB\nMemFree: 1 kB\n", "other": "MemFree: 1 kB\n"})
	if got, err := memTotal(filepath.Join(dir, "meminfo")); err != nil || got != 24576<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for _, name := range []string{"other", "missing"} {
		if _, err := memTotal(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got, err := Memory(); err != nil || got < 64<<20 {
		t.Errorf("this machine has %d bytes, %v", got, err)
	}
}

func TestCapabilitiesAreRead(t *testing.T) {
	for set, want := range map[string]bool{"000001ffffffffff": true, "0000000000200000": true, "000001ffffdfffff": false, "": false, "x": false} {
		if got := hasCapability(set, 21); got != want {
			t.Errorf("CAP_SYS_ADMIN in %q: %t", set, got)
		}
	}
}

func TestFuseConfiguration(t *testing.T) {
	dir := files(t, map[string]string{"yes": "mount_max = 9\nuser_allow_other\n", "no": "#user_allow_other\n"})
	for name, want := range map[string]bool{"yes": true, "no": false, "missing": false} {
		if got := fuseConfAllowsOther(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
