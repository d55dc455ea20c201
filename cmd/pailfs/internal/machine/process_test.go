package machine

import (
	"runtime"
	"testing"
)

// processors lets now threads run for the time of a test, whose environment says
// GOMAXPROCS=said.
func processors(t *testing.T, now int, said string) {
	t.Helper()
	was := runtime.GOMAXPROCS(now)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	t.Setenv("GOMAXPROCS", said)
}

func TestASmallMachineAnswersFourRequestsAtOnce(t *testing.T) {
	processors(t, 2, "")
	if raiseGOMAXPROCS(); runtime.GOMAXPROCS(0) != fewestAtOnce {
		t.Errorf("%d threads run at once, want %d", runtime.GOMAXPROCS(0), fewestAtOnce)
	}
}

func TestALargeMachineIsLeftAsItIs(t *testing.T) {
	processors(t, 7, "")
	if raiseGOMAXPROCS(); runtime.GOMAXPROCS(0) != 7 {
		t.Errorf("%d threads run at once, want the 7 that there were", runtime.GOMAXPROCS(0))
	}
}

func TestAChosenGOMAXPROCSStays(t *testing.T) {
	processors(t, 1, "1")
	if raiseGOMAXPROCS(); runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("%d threads run at once, want the one that was asked for", runtime.GOMAXPROCS(0))
	}
}
