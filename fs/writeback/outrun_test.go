package writeback

import (
	"fmt"
	"testing"
	"time"
)

// A file that is opened, appended to and closed more often than a publication takes is
// published all the same, and what waits for it.
func TestFileThatIsAppendedToOftenIsPublished(t *testing.T) {
	for _, ms := range []int{2, 5, 10} {
		t.Run(fmt.Sprintf("every %d ms", ms), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(c *Config) { c.limits.small = 1 << 20 })
				appendOften(t, w, 20, time.Duration(ms)*time.Millisecond)
			})
		})
	}
}

func appendOften(t *testing.T, w *world, size int, every time.Duration) {
	t.Helper()
	w.store.put("p/elsewhere/x", "x")
	w.write("", "log", filled(size))
	w.drain()
	want, n := filled(size), 0
	add := func(line string) {
		h, err := w.space.Open(t.Context(), "", "log", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Append(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
		want += line
		w.finish(h)
		time.Sleep(every)
	}
	add("first")
	if _, err := w.space.Rename(t.Context(), "elsewhere", "x", "elsewhere", "y", 0); err != nil {
		t.Fatal(err)
	}

	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); n++ {
		add(fmt.Sprintf("line %d\n", n))
	}
	got := w.inBucket()
	if len(got["p/log"]) < len(want)/4 {
		t.Errorf("%d of %d bytes were published while %d lines were appended", len(got["p/log"]), len(want), n)
	}
	if got["p/log"] != want[:len(got["p/log"])] {
		t.Errorf("the bucket shows %.40q, which the log never was", got["p/log"])
	}
	if _, ok := got["p/elsewhere/y"]; !ok {
		t.Error("a rename elsewhere was not published")
	}
	w.drain()
	w.holds("p/log", want)
	w.stop()
}
