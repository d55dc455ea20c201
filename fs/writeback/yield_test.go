package writeback

import (
	"testing"
	"time"
)

// A shard is replaced and latest is written again in place, before the first latest is
// published: latest comes after the shard that was closed before it.
func TestLatestWrittenAgainComesAfterTheShardThatWasReplaced(t *testing.T) {
	for name, c := range map[string]struct{ fails, killed bool }{
		"waits": {}, "fails": {fails: true}, "killed": {fails: true, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				bubble(t, func(t *testing.T) {
					w := newWorld(t, seed)
					w.deny("p/d/s.bin", true)
					w.store.seen = func(key string, content []byte) {
						if got := w.store.objects["p/d/s.bin"].content; key == "p/latest" && string(content) != string(got) {
							t.Errorf("seed %d: latest says %s, and the shard is %s", seed, content, got)
						}
					}
					if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
						t.Fatal(err)
					}
					w.write("d", "s.bin", "1")
					time.Sleep(2 * time.Second)
					if c.fails {
						w.deny("p/d/s.bin", false)
						time.Sleep(time.Minute)
						w.holds("p/d/s.bin", "1")
						w.deny("p/d/s.bin", true)
						w.slowly(time.Minute)
						w.deny("p/latest", true)
					}
					w.write("", "latest", "1")
					time.Sleep(2 * time.Second)
					w.moved("2")
					time.Sleep(2 * time.Second)
					w.write("", "latest", "2")
					w.slowly(0)
					if c.killed {
						w.crash(false)
					}
					w.checkJournal()
					w.deny("p/latest", false)
					time.Sleep(10 * time.Minute)
					w.deny("p/d/s.bin", false)
					w.drain()
					w.holds("p/d/s.bin", "2")
					w.holds("p/latest", "2")
					w.stop()
				})
			}
		})
	}
}

// What is beside latest, or elsewhere and replaces something, and was closed between its
// two closes finds a latest.
func TestLatestWrittenAgainKeepsThePlaceThatOthersWaitFor(t *testing.T) {
	for _, other := range []string{"a/_SUCCESS", "c/shard"} {
		t.Run(other, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.store.put("p/"+other, "old")
				w.store.put("p/a/d/s.bin", "old")
				w.watchOrder("p/a/latest", "p/"+other)
				w.slowly(time.Minute)
				w.write("a/d", "first", "1")
				time.Sleep(2 * time.Second)
				w.write("a", "latest", "1")
				time.Sleep(2 * time.Second)
				w.write("a/d", "s.bin", "2")
				dir, base := splitPath(other)
				w.write(dir, base, "2")
				time.Sleep(2 * time.Second)
				w.write("a", "latest", "2")
				w.checkJournal()
				w.drain()
				w.holds("p/a/latest", "2")
				w.holds("p/"+other, "2")
				w.stop()
			})
		})
	}
}

// TestLatestWrittenAgainPrecedesAReplacedShard: exactly where something waits for the first latest, which
// DESIGN.md says is a limit, what is written over it has its place.
func TestLatestWrittenAgainPrecedesAReplacedShard(t *testing.T) {
	for name, c := range map[string]struct {
		other          string
		removed, moved bool
		// slow: the shard is sent slowly, and is not refused.
		slow, want bool
	}{
		"nothing":                             {},
		"something new beside it":             {other: "a/_SUCCESS", want: true},
		"something new above it":              {other: "top", want: true},
		"something new below it":              {other: "a/d/new"},
		"something replaced below it":         {other: "a/d/old"},
		"something new elsewhere":             {other: "c/new"},
		"something replaced elsewhere":        {other: "c/old", slow: true, want: true},
		"something removed elsewhere":         {other: "c/old", removed: true, slow: true, want: true},
		"replaced elsewhere, does not wait":   {other: "c/old"},
		"removed elsewhere, does not wait":    {other: "c/old", removed: true},
		"beside it, and latest is moved":      {other: "a/_SUCCESS", moved: true},
		"replaced elsewhere, latest is moved": {other: "c/old", moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				for _, key := range []string{"p/a/d/old", "p/c/old"} {
					w.store.put(key, "old")
				}
				if c.slow {
					w.slowly(time.Minute)
				}
				w.deny("p/a/d/s.bin", !c.slow)
				precedes := false
				w.store.seen = func(key string, content []byte) {
					if key == "p/a/latest" && string(content) == "2" {
						precedes = string(w.store.objects["p/a/d/s.bin"].content) != "2"
					}
				}
				w.write("a/d", "s.bin", "1")
				time.Sleep(2 * time.Second)
				w.write("a", "latest", "1")
				time.Sleep(2 * time.Second)
				w.write("a/d", "s.tmp", "2")
				w.move("a/d", "s.tmp", "s.bin")
				time.Sleep(2 * time.Second)
				switch dir, base := splitPath(c.other); {
				case c.removed:
					if err := w.space.Unlink(t.Context(), dir, base); err != nil {
						t.Fatal(err)
					}
				case base != "":
					w.write(dir, base, "other")
				}
				time.Sleep(2 * time.Second)
				if c.moved {
					w.write("a", "latest.tmp", "2")
					w.move("a", "latest.tmp", "latest")
				} else {
					w.write("a", "latest", "2")
				}
				w.checkJournal()
				w.deny("p/a/d/s.bin", false)
				time.Sleep(10 * time.Minute)
				w.drain()
				w.holds("p/a/latest", "2")
				w.holds("p/a/d/s.bin", "2")
				if precedes != c.want {
					t.Errorf("latest precedes the shard: %v, want %v", precedes, c.want)
				}
				w.stop()
			})
		})
	}
}
