package writeback

import (
	"fmt"
	"strings"
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

// A file that was an object of another name is no exception once it has its own.
func TestRenamedObjectThatIsAppendedToOftenIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.limits.small = 1 << 20 })
		w.store.put("p/old", "content")
		w.write("", "old", "edited")
		e, _, err := w.space.Lookup(t.Context(), "", "old")
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.space.OpenFile(t.Context(), e.File, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.drain()
		w.rename("old", "log")
		w.drain()
		appendOften(t, w, 20, 2*time.Millisecond)
		r.Release()
	})
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

// A large file that changes before all of it was sent is named in status, until it rests.
func TestLargeFileThatNeverRestsIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.store.Lock()
		w.store.slow = 5 * time.Second
		w.store.Unlock()
		for n := range 20 {
			w.write("", "large", strings.Repeat(fmt.Sprint(n%10), 200))
			if n == 1 && w.space.Status().RestlessCount > 0 {
				t.Error("a file that was written twice is said to be restless")
			}
			time.Sleep(3 * time.Second)
		}
		w.holds("p/large", "")
		st := w.space.Status()
		if st.RestlessCount != 1 || len(st.Restless) != 1 || st.Restless[0].Path != "large" || st.Restless[0].State != "restless" {
			t.Errorf("restless are %d, %+v", st.RestlessCount, st.Restless)
		}
		w.drain()
		w.holds("p/large", strings.Repeat("9", 200))
		if st := w.space.Status(); st.RestlessCount != 0 {
			t.Errorf("%d files are restless after all is published", st.RestlessCount)
		}
		w.stop()
	})
}
