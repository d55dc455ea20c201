package walk

import (
	"fmt"
	"testing"
	"time"
)

var begin = time.Unix(1_700_000_000, 0)

func key(i int) string { return fmt.Sprintf("%06d", i) }

// The window doubles with each half of it that is looked at, and ends with the directory.
func TestWalkWidensToTheMost(t *testing.T) {
	var w Walk
	asked := w.Looked(key(1), true, begin)
	if want := (Ask{After: key(1), Names: least}); asked != want {
		t.Fatalf("the walk begins with %+v, want %+v", asked, want)
	}
	at := 1
	for want := 2 * least; want <= 4*Most; want *= 2 {
		last := at + asked.Names
		w.Found(key(last), asked.Names)
		w.Asked()
		for asked = (Ask{}); asked.Names == 0; {
			at++
			if at > last {
				t.Fatalf("nothing more is asked for up to %d", last)
			}
			asked = w.Looked(key(at), false, begin)
		}
		if asked.After != key(last) || asked.Names != min(want, Most) {
			t.Errorf("after %d it asks for %+v, want %d after %d", at, asked, min(want, Most), last)
		}
		at = last
	}
	w.Found("", 0)
	if w.Over() {
		t.Error("it is over while it is being asked for")
	}
	w.Asked()
	if !w.Over() {
		t.Error("it goes on after the end")
	}
}

// What is listed with attributes is not asked for again ahead, and what follows is.
func TestWalkGoesOnAfterWhatWasListed(t *testing.T) {
	var w Walk
	if asked := w.Listed(key(1000), 1000, begin); asked != (Ask{After: key(1000), Names: 2000}) {
		t.Errorf("after a page it asks for %+v", asked)
	}
	w.Found(key(3000), 2000)
	w.Asked()
	if asked := w.Listed(key(1500), 500, begin); asked.Names > 0 {
		t.Errorf("within what was asked for it asks for %+v", asked)
	}
	if asked := w.Listed(key(2500), 1000, begin); asked != (Ask{After: key(3000), Names: Most}) {
		t.Errorf("near its end it asks for %+v", asked)
	}
}

func TestWalkIsDesertedWhenNobodyLooksNorWaits(t *testing.T) {
	var w Walk
	w.Looked(key(1), true, begin)
	for _, c := range []struct {
		after    time.Duration
		deserted bool
	}{{0, false}, {Idle - 1, false}, {Idle, true}} {
		if deserted, again := w.Deserted(begin.Add(c.after)); deserted != c.deserted || !deserted && again != Idle-c.after {
			t.Errorf("after %v: %t, %v", c.after, deserted, again)
		}
	}
	w.Waits()
	if deserted, _ := w.Deserted(begin.Add(time.Hour)); deserted {
		t.Error("somebody waits")
	}
	w.Waited(begin.Add(time.Hour))
	if deserted, again := w.Deserted(begin.Add(time.Hour)); deserted || again != Idle {
		t.Errorf("who has waited has gone: %v", again)
	}
}
