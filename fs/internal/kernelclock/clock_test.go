package kernelclock

import (
	"sync"
	"testing"
)

// TestClockIsAskedWhileItEnds: the space may tell of a change at any moment; the race
// detector, and the times, show that nothing is asked of a file that is closed.
func TestClockIsAskedWhileItEnds(t *testing.T) {
	for range 100 {
		c, err := New()
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for range 10 {
					if at := c.Now(); at <= 0 {
						t.Errorf("it is %d", at)
					}
				}
			})
		}
		c.Close()
		asking.Wait()
		if at := c.Now(); at <= 0 {
			t.Errorf("it is %d after the end", at)
		}
	}
}
