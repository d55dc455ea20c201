package eviction

import (
	"slices"
	"testing"
)

// fullResidents returns residents that are full, and how often their evictor was asked since.
func fullResidents(t *testing.T) (r *Residents, asked func() int) {
	t.Helper()
	n := 0
	r = New(func() { n++ })
	r.SetLimit(testLimit)
	for k := range uint64(testResidents) {
		r.Reserve(testIdentity(k), testObject, false)
	}
	r.Excess() // what the evictor was told so far
	return r, func() int { defer func() { n = 0 }(); return n }
}

// line lets objects wait for room for some bytes each.
func line(t *testing.T, r *Residents, bytes ...int64) (waiting []*RoomWaiter) {
	t.Helper()
	for i, b := range bytes {
		w := NewRoomWaiter(testIdentity(uint64(10_000 + i)))
		if answer := r.ReserveInLine(w, b); answer != Full {
			t.Fatalf("answer %d: there is room", answer)
		}
		waiting = append(waiting, w)
	}
	return waiting
}

// told tells which of them were told to look, and forgets it.
func told(waiting []*RoomWaiter) (those []int) {
	for i, w := range waiting {
		select {
		case <-w.Look:
			those = append(those, i)
		default:
		}
	}
	return those
}

// free evicts n objects.
func free(t *testing.T, r *Residents, n int) {
	t.Helper()
	var victims []*Resident
	for range n {
		e := r.Pick(takeIdle)
		if e == nil {
			t.Fatal("there is no victim")
		}
		victims = append(victims, e)
	}
	r.Gone(victims)
}

// TestRoomIsOfferedToThoseItIsEnoughFor: a hundred who look in vain would take the
// processor from reads and hints.
func TestRoomIsOfferedToThoseItIsEnoughFor(t *testing.T) {
	r, asked := fullResidents(t)
	waiting := line(t, r, testObject, testObject, testObject)
	if asked() == 0 {
		t.Error("the evictor does not know that somebody waits")
	}
	r.Changed()
	if got := told(waiting); got != nil {
		t.Errorf("%v were told to look where nothing was free", got)
	}
	if asked() == 0 {
		t.Error("the evictor does not know that there may be a victim")
	}
	free(t, r, 2)
	if got := told(waiting); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("%v were told to look where there was room for two", got)
	}
	if answer := r.ReserveInLine(waiting[0], testObject); answer != Reserved {
		t.Errorf("the first got the answer %d", answer)
	}
	// The second has enough of waiting: what it was told of is the third's.
	r.Leave(waiting[1])
	if got := told(waiting); !slices.Equal(got, []int{2}) {
		t.Errorf("%v were told to look where one had left", got)
	}
	if answer := r.ReserveInLine(waiting[2], testObject); answer != Reserved {
		t.Errorf("the third got the answer %d", answer)
	}
	if len(r.mu.line) != 0 {
		t.Errorf("%d wait who have what they wanted", len(r.mu.line))
	}
}

// TestWhoNeedsMuchLetsOthersPass: it may wait for what is held for hours.
func TestWhoNeedsMuchLetsOthersPass(t *testing.T) {
	r, _ := fullResidents(t)
	waiting := line(t, r, 100*testObject, testObject)
	free(t, r, 2)
	if got := told(waiting); !slices.Equal(got, []int{1}) {
		t.Errorf("%v were told to look, want the second", got)
	}
}

// TestRoomThatAWriteHasTakenIsOfferedAgain: what is left of it is enough for another.
func TestRoomThatAWriteHasTakenIsOfferedAgain(t *testing.T) {
	r, _ := fullResidents(t)
	waiting := line(t, r, 3*testObject, testObject)
	free(t, r, 3)
	if got := told(waiting); !slices.Equal(got, []int{0}) {
		t.Fatalf("%v were told to look, want the first", got)
	}
	r.Reserve(testIdentity(20_000), testObject, false)
	if answer := r.ReserveInLine(waiting[0], 3*testObject); answer != Full {
		t.Fatalf("the first got the answer %d", answer)
	}
	if got := told(waiting); !slices.Equal(got, []int{1}) {
		t.Errorf("%v were told to look, want the second", got)
	}
}

// TestWhoMeetsAnEvictionLooksAgainAfterIt, whatever came of it.
func TestWhoMeetsAnEvictionLooksAgainAfterIt(t *testing.T) {
	for name, end := range map[string]func(*Residents, *Resident){
		"gone":     func(r *Residents, e *Resident) { r.Gone([]*Resident{e}) },
		"put back": func(r *Residents, e *Resident) { r.PutBack(e) },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := fullResidents(t)
			e := r.Pick(takeIdle)
			w := NewRoomWaiter(e.ID)
			if answer := r.ReserveInLine(w, testObject); answer != Busy {
				t.Fatalf("answer %d of an object that is on its way out", answer)
			}
			end(r, e)
			if told([]*RoomWaiter{w}) == nil {
				t.Error("it was not told to look again")
			}
		})
	}
}

// TestOneEvictionServesAllWhoWaitForRoom: telling the disk costs more than the files
// that go, so those who fetch must not be served one by one.
func TestOneEvictionServesAllWhoWaitForRoom(t *testing.T) {
	r, _ := fullResidents(t)
	const each = 10 * testObject
	waiting := line(t, r, each, each, each, each, each, each, each, each)
	for _, w := range waiting {
		r.ReserveInLine(w, each) // it looks again, and wants no more than before
	}
	for range 2 { // they wait until they have it, however often the evictor looks
		if bytes, _ := r.Excess(); bytes < 8*each || bytes > 9*each {
			t.Errorf("eviction is to free %d bytes for 8 who want %d each", bytes, each)
		}
	}
	for _, w := range waiting {
		r.Leave(w)
	}
	// Those who do not wait are gone when there is room.
	for n := range uint64(8) {
		if answer, _ := r.Reserve(testIdentity(20_000+n), each, false); answer != Full {
			t.Fatalf("answer %d: there is room", answer)
		}
	}
	if bytes, _ := r.Excess(); bytes > 3*each {
		t.Errorf("eviction is to free %d bytes for those who do not wait", bytes)
	}
}

// TestNothingIsReservedWhereNothingIsLeft: whoever wants no more room must not wait, and
// not look over and over.
func TestNothingIsReservedWhereNothingIsLeft(t *testing.T) {
	r, _ := fullResidents(t)
	r.SetLimit(testLimit - testObject)
	w := NewRoomWaiter(testIdentity(0))
	defer r.Leave(w)
	if answer := r.ReserveInLine(w, 0); answer != Reserved {
		t.Errorf("the answer is %d for what is whole", answer)
	}
}

// TestWhoNeedsLessLooksAgain: another may bring the same object meanwhile.
func TestWhoNeedsLessLooksAgain(t *testing.T) {
	r, _ := fullResidents(t)
	waiting := line(t, r, testObject, testObject)
	r.Progressed(waiting[1].id)
	if got := told(waiting); !slices.Equal(got, []int{1}) {
		t.Errorf("%v were told to look, want the one whose object has come", got)
	}
}

// TestOneObjectIsMadeRoomForOnce: however many wait for it.
func TestOneObjectIsMadeRoomForOnce(t *testing.T) {
	r, _ := fullResidents(t)
	for range 3 {
		w := NewRoomWaiter(testIdentity(20_000))
		defer r.Leave(w)
		r.ReserveInLine(w, testObject)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes, _ := r.mu.line.need(r.mu.held); bytes != testObject+Overhead {
		t.Errorf("%d bytes are wanted for one object of %d", bytes, testObject)
	}
}
