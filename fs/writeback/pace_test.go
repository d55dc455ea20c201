package writeback

import (
	"fmt"
	"io"
	"strings"
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
		for range 20 {
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
