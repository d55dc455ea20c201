package cache

import (
	"os"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// openWhole opens and closes obj and tells whether its file was handed out.
func openWhole(t *testing.T, c *Cache, obj oss.Object) bool {
	t.Helper()
	h, err := c.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	_, whole := h.WholeFile()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return whole
}

// forgotten waits until nothing refers to obj, which nobody has open.
func forgotten(t *testing.T, c *Cache, obj oss.Object) {
	t.Helper()
	c.Release(obj)
	waitUntil(t, "nothing refers to the object", func() bool { return c.objects.count() == 0 })
}

// A file that was whole and checked once is handed out at each open, also if it
// was closed and forgotten in between, and after a restart as soon as it was
// checked, though nobody keeps it open for that.
func TestCheckedFileIsHandedOutToWhoOpensItBriefly(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	obj := s.put("object", 5<<20)
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 5<<20)
	waitUntil(t, "it is whole", func() bool { return c.Residency(obj).Whole })
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		forgotten(t, c, obj)
		if !openWhole(t, c, obj) {
			t.Error("not handed out once it was forgotten")
		}
	}
	closeCache(t, c)

	c = openCache(t, s, Config{Dir: dir})
	if openWhole(t, c, obj) {
		t.Error("handed out unchecked after a restart")
	}
	waitUntil(t, "it is checked", func() bool { return openWhole(t, c, obj) })
	forgotten(t, c, obj)
	if !openWhole(t, c, obj) {
		t.Error("not handed out once it was checked and forgotten")
	}

	// Another file in its place was not checked.
	forgotten(t, c, obj)
	path := objectFile(dir, obj)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if openWhole(t, c, obj) {
		t.Error("handed out another file")
	}
	checkRead(t, s, openObject(t, c, obj), 0, 5<<20)
}
