package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// procOf makes a /proc of a trainer, 10, and its loader's worker, 11, that has a
// file of a mount open.
func procOf(t *testing.T) string {
	t.Helper()
	h := &host{t: t}
	root := t.TempDir()
	mountinfo := "36 1 0:50 / /mnt/da\\040ta rw - fuse.pailfs oss://b/train rw\n37 1 0:51 / /mnt/other rw - fuse.pailfs oss://b/o rw\n" +
		"38 1 8:1 / / rw - ext4 /dev/sda rw\n39 1 0:52 / /mnt/third rw,x shared:1 - fuse.pailfs oss://b/t rw\n"
	for pid, parent := range map[int]int{10: 1, 11: 10, 12: 11, 13: 1} {
		dir := filepath.Join(root, itoa(pid))
		h.file(dir+"/stat", itoa(pid)+" (py) thon (x)) S "+itoa(parent)+" 1 1")
		h.file(dir+"/comm", "python\n")
		h.file(dir+"/status", "Name:\tpython\nUid:\t1000\t1001\t1000\t1000\n")
		h.file(dir+"/mountinfo", mountinfo)
		h.file(dir+"/maps", "")
	}
	h.file(root+"/11/fdinfo/7", "pos:\t0\nflags:\t0100000\nmnt_id:\t36\n")
	h.file(root+"/10/fdinfo/1", "pos:\t0\nmnt_id:\t38\n")
	h.file(root+"/12/maps", "7f00-7f01 r--s 00000000 00:34 1    /mnt/third/model.bin\n7f01-7f02 r-xp 0 08:01 2 /usr/lib/x.so\n")
	if err := os.Symlink("/mnt/other", filepath.Join(root, "13/cwd")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTrainerIsFoundByWhatItsWorkersRead(t *testing.T) {
	table := readTable(procOf(t))
	p := Process{PID: 10}
	table.describe(&p)
	if want := []string{"/mnt/da ta", "/mnt/third"}; !slices.Equal(p.Mounts, want) || p.Name != "python" || p.UID != 1001 {
		t.Errorf("%+v, want mounts %q", p, want)
	}
	p = Process{PID: 13}
	table.describe(&p)
	if want := []string{"/mnt/other"}; !slices.Equal(p.Mounts, want) {
		t.Errorf("%+v, want mounts %q", p, want)
	}
}
