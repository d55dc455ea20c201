package writeback

import (
	"testing"
	"time"
)

// A limit of the order, see DESIGN.md: a shard that is replaced before it is published lets
// latest, which was closed after it, appear where there is no shard at all. This says in
// which cases. Where it does no more, take the limit out of DESIGN.md and SEMANTICS.md.
func TestWhatIsReplacedUnpublishedLetsLatestGoFirst(t *testing.T) {
	move := func(w *world) {
		w.write("d", "s.tmp", "two")
		if _, err := w.space.Rename(w.Context(), "d", "s.tmp", "d", "s.bin", 0); err != nil {
			w.Fatal(err)
		}
	}
	again := func(w *world) { w.write("d", "s.bin", "two") }
	for name, row := range map[string]struct {
		// flying says that the shard is being sent when latest is closed, else it could not
		// be; killed that the daemon is after the shard was replaced.
		flying, killed bool
		replace        func(w *world)
		first          bool
	}{
		"not replaced":                     {false, false, func(*world) {}, false},
		"moved over":                       {false, false, move, true},
		"moved over in flight":             {true, false, move, false},
		"moved over in flight, killed":     {true, true, move, true},
		"written again in flight":          {true, false, again, false},
		"written again in flight, killed":  {true, true, again, true},
		"left alone in flight, and killed": {true, true, func(*world) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				first := false
				w.store.seen = func(key string, _ []byte) {
					_, shard := w.store.objects["p/d/s.bin"]
					first = first || key == "p/latest" && !shard
				}
				if row.flying {
					w.slowly(time.Minute)
				}
				w.deny("p/d/s.bin", !row.flying)
				if err := w.space.Mkdir(t.Context(), "", "d"); err != nil {
					t.Fatal(err)
				}
				w.write("d", "s.bin", "one")
				time.Sleep(2 * time.Second)
				w.write("", "latest", "d/s.bin")
				row.replace(w)
				time.Sleep(time.Second)
				if row.killed {
					w.crash(false)
				}
				w.deny("p/d/s.bin", false)
				w.slowly(0)
				w.drain()
				if first != row.first {
					t.Errorf("latest appeared where there was no shard: %v, want %v", first, row.first)
				}
				w.holds("p/latest", "d/s.bin")
				if w.inBucket()["p/d/s.bin"] == "" {
					t.Error("there is no shard in the end")
				}
				w.stop()
			})
		})
	}
}

// The same of a shard that is opened to be written anew before it was published: until it
// is closed it is unfinished, and holds back nothing.
func TestShardThatIsBeingWrittenAnewLetsLatestGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.space.Mkdir(t.Context(), "", "d"); err != nil {
			t.Fatal(err)
		}
		w.write("d", "s.bin", "one")
		h, err := w.space.Open(t.Context(), "d", "s.bin", OpenOptions{Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.write("", "latest", "d/s.bin")
		for range 60 {
			if _, err := h.WriteAt(t.Context(), []byte("two"), 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		w.holds("p/latest", "d/s.bin")
		w.holds("p/d/s.bin", "")
		w.finish(h)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.stop()
	})
}
