package writeback

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// While programs write many files nothing is sent beside them; when they pause it is.
func TestUploadsWaitForProgramsThatWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		sent := func() int {
			w.store.Lock()
			defer w.store.Unlock()
			return w.store.writes
		}
		n := 0
		busy := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				w.write("", fmt.Sprint("f", n), "content")
				n++
			}
		}
		busy(700 * time.Millisecond)
		before := sent()
		busy(time.Second)
		if now := sent(); now != before {
			t.Errorf("%d files were sent beside programs that write", now-before)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if sent() == before {
			t.Error("nothing was sent after the programs had ended")
		}
		w.drain()
		w.stop()
	})
}

func TestUploadsMayBeToldToWaitForNobody(t *testing.T) {
	at := time.Now()
	p := pacing{off: true}
	p.begin(at)
	for range 50 {
		at = at.Add(watchEvery)
		p.closes.Add(fastClosing)
		if !p.look(at, fastWriting, true) {
			t.Fatal("nobody looks any more: parts of what is being written would not be sent")
		}
		if p.fast.Load() || p.yielding.Load() {
			t.Fatal("uploads give way to programs that write")
		}
	}
}

// Programs that write without an end are not waited for without an end.
func TestUploadsDoNotWaitForEver(t *testing.T) {
	for name, busy := range map[string]func(p *pacing) (grown int64){
		"many files":   func(p *pacing) int64 { p.closes.Add(fastClosing); return 0 },
		"a large file": func(*pacing) int64 { return fastWriting },
	} {
		at := time.Now()
		var p pacing
		p.begin(at)
		look := func(busy func(p *pacing) int64) bool {
			at = at.Add(watchEvery)
			return p.look(at, busy(&p), true)
		}
		yielded := time.Duration(0)
		for range int(2 * yieldMost / watchEvery) {
			if !look(busy) {
				t.Fatalf("%s: nobody looks any more", name)
			}
			if p.yielding.Load() {
				yielded += watchEvery
			}
		}
		if yielded < yieldMost-time.Second || yielded > yieldMost || !p.fast.Load() {
			t.Errorf("%s: uploads waited %v of %v, want %v; fast: %v", name, yielded, 2*yieldMost, yieldMost, p.fast.Load())
		}
		for range int(2 * yieldMost / watchEvery) {
			look(func(*pacing) int64 { return 1 << 20 })
		}
		if p.fast.Load() || p.yielding.Load() {
			t.Errorf("%s: slow writers are taken for fast ones", name)
		}
		for range 20 {
			look(busy)
		}
		if !p.yielding.Load() {
			t.Errorf("%s: nothing waits after a pause", name)
		}
		if p.look(at.Add(watchEvery), 0, false) || p.fast.Load() || p.yielding.Load() {
			t.Errorf("%s: uploads wait for programs that have ended", name)
		}
	}
}

// Programs that pause now and then get no new allowance by that: over a long time uploads
// have half of it. Checkpoints with as much rest between them are not disturbed.
func TestUploadsHaveHalfOfTheTime(t *testing.T) {
	const long = 10 * time.Minute
	for _, c := range []struct {
		writing, pause time.Duration
		undisturbed    bool
	}{
		{1500 * time.Millisecond, 500 * time.Millisecond, false},
		{3 * time.Second, 600 * time.Millisecond, false},
		{5 * time.Second, 300 * time.Millisecond, false},
		{10 * time.Second, time.Second, false},
		{long, 0, false},
		{2 * time.Second, 5 * time.Second, true},
		{4 * time.Second, 5 * time.Second, true},
		{12 * time.Second, 20 * time.Second, true},
	} {
		for name, open := range map[string]bool{"open": true, "closed": false} {
			var p pacing
			start := time.Now()
			p.begin(start)
			yielded, disturbed := time.Duration(0), time.Duration(0)
			for passed := watchEvery; passed <= long; passed += watchEvery {
				writing := (passed-watchEvery)%(c.writing+c.pause) < c.writing
				grown := int64(0)
				if writing {
					grown = int64(watchEvery.Seconds() * (1 << 30))
				}
				// Without writers nobody looks but once.
				switch at := start.Add(passed); {
				case writing && !open && p.last.Before(at.Add(-watchEvery)):
					p.begin(at)
				case writing || open || p.fast.Load():
					p.look(at, grown, writing || open)
				}
				if p.yielding.Load() {
					yielded += watchEvery
				} else if p.fast.Load() {
					disturbed += watchEvery
				}
			}
			if yielded > long/2+yieldMost/2+time.Second || yielded < yieldMost-time.Second {
				t.Errorf("%v of writing, %v of rest, %s: uploads waited %v of %v", c.writing, c.pause, name, yielded, long)
			}
			if c.undisturbed != (disturbed == 0) {
				t.Errorf("%v of writing, %v of rest, %s: programs were disturbed for %v", c.writing, c.pause, name, disturbed)
			}
		}
	}
}

// grower writes to a file as fast as no disk is, past the space and without taking up
// any room, until end is called.
func (w *world) grower(base string) (end func()) {
	w.Helper()
	h, err := w.space.Create(w.Context(), "", base, CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	path := w.space.path(h.File().id)
	go func() {
		defer close(ended)
		for size := int64(0); ; size += 100 << 20 {
			select {
			case <-stop:
				return
			case <-time.After(watchEvery):
			}
			if err := os.Truncate(path, size); err != nil {
				w.Error(err)
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		if err := os.Truncate(path, 0); err != nil {
			w.Error(err)
		}
		h.Release()
	}
}

// Who needs room gets it from uploads, which wait for no program then.
func TestUploadsThatMakeRoomWaitForNoProgram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.FullWait = yieldMost / 3 })
		end := w.grower("fast")
		time.Sleep(time.Second)
		w.write("", "a", "content")
		if err := w.space.withRoom(t.Context(), 1, func() error {
			if !w.space.pacing.yielding.Load() {
				t.Error("the programs are not fast: that is not the case to be tested")
			}
			if _, sent := w.inBucket()["p/a"]; !sent {
				return syscall.ENOSPC
			}
			return nil
		}); err != nil {
			t.Errorf("wait for room: %v", err)
		}
		if !w.space.yields() {
			t.Error("programs are not waited for any more when there is room")
		}
		end()
		w.drain()
		w.stop()
	})
}

// Nor do they when much of the room is taken: the kernel lets programs write without a
// question, and they would have to wait later.
func TestUploadsWaitOnlyWhileThereIsRoom(t *testing.T) {
	for size, waits := range map[int]bool{1 << 20: true, 3 << 20: false} {
		bubble(t, func(t *testing.T) {
			w := newWorldWith(t, 1, func(c *Config) { c.StagingSize = 4 << 20 })
			end := w.grower("fast")
			time.Sleep(time.Second)
			w.write("", "a", strings.Repeat("x", size))
			time.Sleep(yieldMost / 3)
			if !w.space.pacing.yielding.Load() {
				t.Error("the programs are not fast: that is not the case to be tested")
			}
			if _, sent := w.inBucket()["p/a"]; sent == waits {
				t.Errorf("%d bytes of %d: sent is %v", size, w.cfg.StagingSize, sent)
			}
			end()
			w.drain()
			w.stop()
		})
	}
}

func TestFlushWaitsForNoProgram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		end := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				case <-time.After(2 * time.Millisecond):
					w.write("d", fmt.Sprint("f", n), "content")
				}
			}
		}()
		time.Sleep(time.Second)
		if !w.space.yields() {
			t.Error("the programs are not fast: that is not the case to be tested")
		}
		began := time.Now()
		w.write("other", "a", "flushed")
		if err := w.space.Flush(t.Context(), "other"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > yieldMost/2 {
			t.Errorf("flush took %v", took)
		}
		close(end)
		<-ended
		w.drain()
		w.stop()
	})
}

// A part on its way goes on, slowly: a request that stops would be given up.
func TestPartsOnTheirWayBecomeATrickle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := pacedPart{io.NewSectionReader(strings.NewReader(strings.Repeat("x", 100)), 0, 100), w.space}
		b := make([]byte, 10)
		began := time.Now()
		if n, err := p.Read(b); n != 10 || err != nil || time.Since(began) != 0 {
			t.Errorf("%d bytes, %v after %v", n, err, time.Since(began))
		}
		w.space.pacing.yielding.Store(true)
		if n, err := p.Read(b); n != 10 || err != nil || time.Since(began) != yieldPoll {
			t.Errorf("%d bytes, %v after %v; want %v", n, err, time.Since(began), yieldPoll)
		}
		w.space.SetDraining(true)
		if n, err := p.Read(b); n != 10 || err != nil || time.Since(began) != yieldPoll {
			t.Errorf("in a drain: %d bytes, %v after %v", n, err, time.Since(began))
		}
		w.space.SetDraining(false)
		w.stop()
	})
}
