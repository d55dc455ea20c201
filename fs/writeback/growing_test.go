package writeback

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogsArePublishedWhileTheyGrow: a few seconds behind, and no byte is sent twice
// but for those of the first few hundred.
func TestLogsArePublishedWhileTheyGrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		published := 0
		written := ""
		w.store.Lock()
		w.store.seen = func(_ string, content []byte) {
			published++
			if !strings.HasPrefix(written, string(content)) {
				t.Errorf("the bucket shows %q, which the log never was", content)
			}
		}
		w.store.Unlock()
		h := w.startWriting("", "train.log", "")
		for n := range 200 {
			line := filled(400)[n : n+10]
			w.store.Lock()
			written += line
			w.store.Unlock()
			w.passThrough(h, line, int64(n*10))
			if got := w.inBucket()["p/train.log"]; n > 10 && len(got) < (n-4)*10 {
				t.Fatalf("the bucket shows %d bytes of a log that had %d a quarter of a minute ago", len(got), (n-4)*10)
			}
		}
		w.finish(h)
		w.drain()
		if got := w.inBucket()["p/train.log"]; got != written {
			t.Errorf("the bucket has %q, want %q", got, written)
		}
		if _, sent := w.inUploads(); sent > 2000+400 || published < 50 {
			t.Errorf("%d bytes were sent for 2000 that were published %d times", sent, published)
		}
		w.stop()
	})
}

// TestLogThatIsEditedIsPublishedAsItIs: what was published before is compared with
// what the file has.
func TestLogThatIsEditedIsPublishedAsItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.startWriting("", "log", filled(100))
		for n := range 5 {
			w.passThrough(h, filled(50), int64(100+50*n))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.inBucket()["p/log"]; len(got) != 350 {
			t.Fatalf("the bucket shows %d bytes of a log that has 350", len(got))
		}
		w.passThrough(h, "EDITED", 20)
		w.passThrough(h, "the end", 350)
		w.finish(h)
		w.drain()
		want := filled(100)[:20] + "EDITED" + filled(100)[26:] + strings.Repeat(filled(50), 5) + "the end"
		if got := w.inBucket()["p/log"]; got != want {
			t.Errorf("the bucket has %q, want %q", got, want)
		}
		w.stop()
	})
}

// TestLogSurvivesTheDaemon: what was published of a log that was never closed is
// still the file's content.
func TestLogSurvivesTheDaemon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.startWriting("", "log", filled(100))
		for n := range 10 {
			w.passThrough(h, filled(50), int64(100+50*n))
		}
		w.crash(false)
		got, err := w.read("", "log")
		if err != nil || len(got) < 500 || !strings.HasPrefix(filled(100)+strings.Repeat(filled(50), 10), got) {
			t.Errorf("after a crash the log holds %d bytes, %v, want at least 500 of 600", len(got), err)
		}
		w.drain()
		if in := w.inBucket()["p/log"]; in != got {
			t.Errorf("the bucket has %q, the mount %q", in, got)
		}
		w.stop()
	})
}

// TestLogThatIsCutIsPublished: also while it is shorter than it was (copytruncate).
// What is opened to be written anew replaces nothing until it is longer.
func TestLogThatIsCutIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.startWriting("", "log", filled(100))
		for n := range 20 {
			w.passThrough(h, filled(50), int64(100+50*n))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.inBucket()["p/log"]; len(got) != 1100 {
			t.Fatalf("the bucket shows %d bytes of a log that has 1100", len(got))
		}
		if err := h.Truncate(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for n := range 60 {
			w.passThrough(h, "0123456789", int64(10*n))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.inBucket()["p/log"]; len(got) != 600 {
			t.Errorf("four minutes after it was cut, the bucket shows %d bytes of a log that has 600", len(got))
		}
		w.finish(h)
		w.drain()
		time.Sleep(time.Minute) // until nobody remembers that it was a log

		h, err := w.space.Open(t.Context(), "", "log", OpenOptions{Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 50 {
			w.passThrough(h, "0123456789", int64(10*n))
		}
		if got := w.inBucket()["p/log"]; len(got) != 600 {
			t.Errorf("the bucket shows %d bytes of a file that is written anew, which had 600", len(got))
		}
		w.finish(h)
		w.drain()
		if got := w.inBucket()["p/log"]; len(got) != 500 {
			t.Errorf("the bucket has %d bytes, want 500", len(got))
		}
		w.stop()
	})
}

// TestOnlyLogsArePublishedWhileOpen: a checkpoint must not be seen before it is
// whole, also where it is written slowly.
func TestOnlyLogsArePublishedWhileOpen(t *testing.T) {
	start := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		sizes []int64 // one a second
		want  bool
	}{
		"log":                    {[]int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}, true},
		"log that pauses":        {[]int64{0, 10, 10, 10, 20, 20, 20, 30, 30, 30, 30, 30}, true},
		"written at once":        {[]int64{0, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, false},
		"young":                  {[]int64{0, 10, 20, 30, 40}, false},
		"checkpoint at 5 MB/s":   {[]int64{0, 5e6, 10e6, 15e6, 20e6, 25e6, 30e6, 35e6, 40e6, 45e6, 50e6, 55e6}, false},
		"began again":            {[]int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 5, 15}, false},
		"appended to an old one": {[]int64{1 << 40, 1<<40 + 1, 1<<40 + 2, 1<<40 + 3, 1<<40 + 4, 1<<40 + 5, 1<<40 + 6, 1<<40 + 7, 1<<40 + 8, 1<<40 + 9, 1<<40 + 10, 1<<40 + 11}, true},
	} {
		var g growth
		at, before := start, int64(0)
		for _, size := range c.sizes {
			g.note(before, size, at)
			before = size
			at = at.Add(time.Second)
		}
		if got := g.steady(before, at); got != c.want {
			t.Errorf("%s: taken for a log: %v, want %v", name, got, c.want)
		}
	}
}

// TestAppendingSendsOnlyWhatIsNew: the rest is copied within the bucket.
func TestAppendingSendsOnlyWhatIsNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.store.put("p/old", filled(500))
		want := filled(500)
		for _, text := range []string{"first", filled(333), "third"} {
			_, before := w.inUploads()
			h, err := w.space.Open(t.Context(), "", "old", OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Append(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
			w.finish(h)
			w.drain()
			want += text
			if got := w.inBucket()["p/old"]; got != want {
				t.Errorf("the bucket has %q, want %q", got, want)
			}
			if _, after := w.inUploads(); after-before != int64(len(text)) {
				t.Errorf("%d bytes were sent for %d that were appended", after-before, len(text))
			} else if told := w.space.Status().UploadedBytes; told != after {
				t.Errorf("status: %d bytes were sent, want %d", told, after)
			}
		}
		w.stop()
	})
}

// TestAppendingToWhatSomebodyElseReplacedKeepsBoth.
func TestAppendingToWhatSomebodyElseReplacedKeepsBoth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.store.put("p/old", filled(500))
		h, err := w.space.Open(t.Context(), "", "old", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Append(t.Context(), []byte("ours")); err != nil {
			t.Fatal(err)
		}
		w.store.put("p/old", "theirs")
		w.finish(h)
		w.drain()
		got := w.inBucket()
		theirs := got["p/old"]
		delete(got, "p/old")
		if len(got) != 1 || theirs != "theirs" {
			t.Fatalf("the bucket has %q and %d more, want theirs and ours", theirs, len(got))
		}
		for key, ours := range got {
			if ours != filled(500)+"ours" || !strings.Contains(key, ".conflict-") {
				t.Errorf("%s holds %q", key, ours)
			}
		}
		if parts, _ := w.inUploads(); len(parts) > 0 {
			t.Errorf("uploads are left: %v", parts)
		}
		w.stop()
	})
}

// TestLongTailIsResumedAfterAKill: of what was appended nothing is sent twice but what
// was under way.
func TestLongTailIsResumedAfterAKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.Bandwidth = 1 << 20 })
		w.store.put("p/old", filled(60))
		h, err := w.space.Open(t.Context(), "", "old", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Append(t.Context(), []byte(filled(4000))); err != nil {
			t.Fatal(err)
		}
		w.finish(h)
		sent := int64(0)
		for sent <= 2000 {
			time.Sleep(time.Millisecond)
			_, sent = w.inUploads()
		}
		w.crash(false)
		w.drain()
		if got := w.inBucket()["p/old"]; got != filled(60)+filled(4000) {
			t.Errorf("the bucket has %d bytes", len(got))
		}
		if parts, all := w.inUploads(); all > 4500 || len(parts) > 0 {
			t.Errorf("%d of 4000 bytes were sent before the kill and %d after it, left %v", sent, all-sent, parts)
		}
		w.stop()
	})
}

// TestTailWhoseUploadVanishesIsSentAgain: and not the file that it is the tail of.
func TestTailWhoseUploadVanishesIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.store.put("p/old", filled(500))
		w.store.Lock()
		w.store.slow = time.Second
		w.store.Unlock()
		h, err := w.space.Open(t.Context(), "", "old", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Append(t.Context(), []byte("a tail")); err != nil {
			t.Fatal(err)
		}
		w.finish(h)
		for begun := false; !begun; {
			time.Sleep(time.Millisecond)
			w.store.Lock()
			begun = len(w.store.uploads) > 0
			clear(w.store.uploads) // as a lifecycle rule does, while its parts are made
			w.store.Unlock()
		}
		w.drain()
		w.holds("p/old", filled(500)+"a tail")
		if _, sent := w.inUploads(); sent > 2*int64(len("a tail")) {
			t.Errorf("%d bytes were sent of a tail of %d", sent, len("a tail"))
		}
		w.stop()
	})
}
