package mountpoint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReadsWhatTheKernelWrites(t *testing.T) {
	const table = `21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
98 21 0:51 / /mnt/two\040words\134x ro,nosuid,nodev - fuse.pailfs oss://bucket/a\040b rw,user_id=0
99 21 0:52 /sub /mnt/bind rw - fuse.pailfs oss://b ro
100 21 0:53 / /none rw master:1 propagate_from:2 - tmpfs
`
	_, err := parse(strings.NewReader(table))
	if err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a line without a source was taken: %v", err)
	}
	got, err := parse(strings.NewReader(table[:strings.Index(table, "100 ")]))
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{Path: "/", Type: "ext4", Source: "/dev/vda1", Major: 254, Minor: 1},
		{Path: `/mnt/two words\x`, Type: Type, Source: "oss://bucket/a b", ReadOnly: true, Minor: 51},
		{Path: "/mnt/bind", Type: Type, Source: "oss://b", ReadOnly: true, Minor: 52},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func TestListUnderstandsThisMachine(t *testing.T) {
	root, ok, err := At("/")
	if err != nil || !ok || root.Type == "" {
		t.Errorf("mount at / is %+v, %t, %v", root, ok, err)
	}
	if m, ok, err := At("/proc/self/nothing/here"); ok || err != nil {
		t.Errorf("a mount was found where none is: %+v, %v", m, err)
	}
}

func TestWithinKnowsNeighboursFromChildren(t *testing.T) {
	for _, c := range []struct {
		dir, path string
		want      bool
	}{
		{"/a", "/a", true},
		{"/a", "/a/b", true},
		{"/a", "/ab", false},
		{"/a/b", "/a", false},
		{"/", "/a", true},
	} {
		if got := Within(c.dir, c.path); got != c.want {
			t.Errorf("Within(%q, %q) is %t", c.dir, c.path, got)
		}
	}
}
