package life

import (
	"context"
	"testing"
)

func TestCallsEndWithTheLifeOrByThemselves(t *testing.T) {
	var l Life
	first, firstDone := l.Within(t.Context())
	second, secondDone := l.Within(t.Context())
	firstDone()
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("after the end of the first call: %v, %v", first.Err(), second.Err())
	}
	if n := len(l.mu.calls); n != 1 {
		t.Errorf("%d calls are kept", n)
	}
	l.End()
	late, lateDone := l.Within(t.Context())
	if second.Err() == nil || late.Err() == nil {
		t.Errorf("after the end of the life: %v, %v", second.Err(), late.Err())
	}
	secondDone()
	lateDone()
}

func TestCallsEndWithTheirContext(t *testing.T) {
	var l Life
	ctx, cancel := context.WithCancel(t.Context())
	within, done := l.Within(ctx)
	defer done()
	cancel()
	if within.Err() == nil {
		t.Error("the call goes on")
	}
}
