package node

import (
	"testing"
	"time"
)

func TestEgressIsAveragedOverAMinute(t *testing.T) {
	var e egress
	for _, c := range []struct {
		second int
		bytes  uint64
		want   int64
	}{
		{0, 5000, 0}, // what came before the agent did
		{10, 6000, 100},
		{20, 6000, 50},
		{60, 12000, 7000 / 60},
		{70, 12000, 100}, // the first one is too old
		{125, 12000, 0},  // the last one that is older than a minute stays
		{135, 300, 0},    // the daemon started anew
		{145, 1300, 100},
	} {
		e.take(began.Add(time.Duration(c.second)*time.Second), c.bytes)
		if got := e.rate(); got != c.want {
			t.Errorf("after %d s: %d bytes a second, want %d", c.second, got, c.want)
		}
	}
}
