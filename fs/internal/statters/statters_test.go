package statters

import "testing"

func TestWalkersOfDirectoriesAreNoStatters(t *testing.T) {
	var s Threads
	if s.Lists(7, 100) || s.Lists(0, 100) {
		t.Error("a thread that nobody has seen is given all attributes")
	}
	s.Lists(7, 100)
	for range Enough {
		s.Asks(8, 100) // another thread
		s.Asks(7, 101) // another directory
	}
	if s.Lists(7, 102) {
		t.Error("lookups elsewhere, or by others, count")
	}
	for range Enough - 1 {
		s.Asks(7, 102)
	}
	if s.Lists(7, 103) {
		t.Error("few lookups suffice")
	}
	for range Enough {
		s.Asks(7, 103)
	}
	if !s.Lists(7, 104) {
		t.Error("a thread that looks up what it lists is not given attributes")
	}
	s.Asks(7, 104)
	if !s.Lists(7, 105) {
		t.Error("a thread that looked up what came without attributes is not given them again")
	}
	if s.Lists(7, 106) {
		t.Error("a thread that did not look up what came without attributes is given them")
	}
	s.Lists(9, 200)
	for range Enough {
		s.Asks(9, 200)
	}
	if s.Lists(9+statterSlots, 201) || s.Lists(9, 202) {
		t.Error("a thread takes over what was seen of another")
	}
}
