package writeback

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
)

// reboot is a crash of the machine that loses no more than what the
// test takes away itself.
func (w *world) reboot() {
	w.Helper()
	w.boots++
	w.crash(false)
}

// A file that was synced keeps its name, and what was synced, when the loss of power
// takes a later change.
func TestSyncedFileKeepsItsNameWhenALaterChangeIsLost(t *testing.T) {
	for name, inline := range map[string]int64{"staged": 3, "inline": 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldWith(t, 1, func(c *Config) {
					l := usualLimits
					l.inline = inline
					c.limits = &l
				})
				h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := h.WriteAt(t.Context(), []byte("synced"), 0); err != nil {
					t.Fatal(err)
				}
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Append(t.Context(), []byte(", but not this")); err != nil {
					t.Fatal(err)
				}
				if err := h.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Another file's fsync brings the journal to the disk, not the content.
				if err := w.space.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				st := h.File().state()
				if st.Durable >= st.Gen {
					t.Fatal("the change is durable: that is not the case to be tested")
				}
				if inline > 6 {
					// Nobody had to write it back.
					if err := overlay(w.space.path(st.ID), make([]byte, st.Size)); err != nil {
						t.Fatal(err)
					}
				}
				w.reboot()
				time.Sleep(10 * time.Minute)
				if got := w.inBucket(); len(got) != 0 {
					t.Errorf("the bucket holds %q, which nobody can vouch for", got)
				}
				got, err := w.read("", "a")
				if err != nil || got[:min(len(got), 6)] != "synced" {
					t.Errorf("a holds %q, %v, want what was synced", got, err)
				}
				if got := w.space.Status().Suspects; len(got) != 1 || got[0] != "a" {
					t.Errorf("suspects are %q, want a", got)
				}
				w.write("", "a", "anew")
				w.drain()
				if got := w.inBucket()["p/a"]; got != "anew" {
					t.Errorf("the bucket holds %q", got)
				}
				w.stop()
			})
		})
	}
}

// A start after the loss of power is interrupted while it writes what it found: the
// next one, in the same run of the machine, must not trust what that one did not.
func TestInterruptedStartAfterTheLossOfPower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		w.write("", "a", "not on the disk yet")
		if w.space.Status().NotDurable != 1 {
			t.Fatal("the change is durable: that is not the case to be tested")
		}
		bytesOf := func(dir string) []byte {
			b, err := os.ReadFile(filepath.Join(dir, journal.Name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		// suspects opens a staging directory after the loss of power.
		suspects := func(dir string) []string {
			cfg := w.cfg
			cfg.Dir = dir
			s, err := open(cfg, w.base, w.bucket, w.cache, nil, w.log, w.disk, "boot-1")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			return s.Status().Suspects
		}
		copied := func(from, to string) string {
			to = filepath.Join(w.root, to)
			if _, err := w.copyDir(from, to, false); err != nil {
				t.Fatal(err)
			}
			return to
		}
		before := len(bytesOf(w.cfg.Dir))
		whole := copied(w.cfg.Dir, "whole")
		if got := suspects(whole); len(got) != 1 {
			t.Fatalf("suspects are %q, want a", got)
		}
		for cut := before; cut <= len(bytesOf(whole)); cut++ {
			dir := copied(whole, fmt.Sprintf("cut-%d", cut))
			if err := os.Truncate(filepath.Join(dir, journal.Name), int64(cut)); err != nil {
				t.Fatal(err)
			}
			if got := suspects(dir); len(got) != 1 {
				t.Errorf("after %d of %d bytes the suspects are %q, want a", cut-before, len(bytesOf(whole))-before, got)
			}
		}
		w.drain()
		w.stop()
	})
}

// A record in the middle of the journal is damaged: the bytes of files that later
// ones speak of are kept for people.
func TestDamagedJournalDeletesNoFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		w.store.deny("p/a", true)
		w.store.deny("p/b", true)
		w.write("", "a", "first file")
		at := w.space.journal.Size()
		w.write("", "b", "second file")
		path := filepath.Join(w.cfg.Dir, journal.Name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[at+8] ^= 0xff // what follows its length and checksum
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		w.crash(false)
		if got, err := w.read("", "a"); err != nil || got != "first file" {
			t.Errorf("a holds %q, %v", got, err)
		}
		kept, err := filepath.Glob(filepath.Join(w.cfg.Dir, "staged*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, path := range kept {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(b))
		}
		slices.Sort(all)
		if want := []string{"first file", "second file"}; !slices.Equal(all, want) {
			t.Errorf("files hold %q, want %q", all, want)
		}
		w.store.deny("p/a", false)
		w.drain()
		w.stop()
	})
}

// What the last daemon could not bring to the disk the next one writes again, for its own
// flush would vouch for it; what was brought there is left alone.
func TestJournalThatTheLastDaemonCouldNotSyncIsWrittenAgain(t *testing.T) {
	for name, fail := range map[string]error{"it could not": syscall.EIO, "it could": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfFiles(t, 1)
				w.store.deny("p/a", true)
				w.write("", "a", "content")
				if err := w.space.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				from := w.space.journal.Size()
				w.disk.Lock()
				w.disk.fail = fail
				w.disk.Unlock()
				if _, err := w.space.Rename(t.Context(), "", "a", "", "b", 0); err != nil {
					t.Fatal(err)
				}
				if err := w.space.Sync(t.Context()); !errors.Is(err, fail) {
					t.Fatalf("sync: %v, want %v", err, fail)
				}
				w.cancel()
				<-w.ended
				end := w.space.journal.Size()
				if err := w.space.Close(); !errors.Is(err, fail) {
					t.Fatalf("close: %v, want %v", err, fail)
				}
				w.closeBase()
				w.start()
				w.disk.Lock()
				first := w.disk.wrote[0]
				w.disk.Unlock()
				if again := first[0] <= from && first[1] == end; again != (fail != nil) {
					t.Errorf("the first write of the next daemon is of the bytes from %d to %d; %d to %d may be lost", first[0], first[1], from, end)
				}
				w.stop()
			})
		})
	}
}
