package mountpoint

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestProberMakesOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		answer := make(chan State)
		p := NewProber("/x")
		p.probe = func(string) (State, error) {
			calls.Add(1)
			return <-answer, nil
		}
		for range 100 {
			if s, err := p.Probe(time.Second); s != Stuck || err != nil {
				t.Fatalf("state %d, %v", s, err)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls wait for a stuck mount", n)
		}
		answer <- Alive
		synctest.Wait()
		go func() { answer <- Dead }()
		if s, err := p.Probe(time.Second); s != Dead || err != nil {
			t.Errorf("state %d, %v; the answer of an old call was given", s, err)
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}
