package writeback

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While programs write many files nothing is sent beside them, but not for ever; when
// they pause, or somebody waits for it, everything is.
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
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
				w.write("", fmt.Sprint("f", n), "content")
				n++
			}
		}
		busy(time.Second)
		before := sent()
		busy(yieldMost - 3*time.Second)
		if now := sent(); now != before {
			t.Errorf("%d files were sent beside programs that write", now-before)
		}
		busy(10 * time.Second)
		if sent() == before {
			t.Error("nothing was sent for ever")
		}
		before = sent()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if sent() == before {
			t.Error("nothing was sent after the programs had ended")
		}
		w.drain()
		w.stop()
	})
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
				case <-time.After(time.Millisecond):
					w.write("d", fmt.Sprint("f", n), "content")
				}
			}
		}()
		time.Sleep(2 * time.Second)
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
