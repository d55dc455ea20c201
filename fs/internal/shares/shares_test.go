package shares

import (
	"errors"
	"syscall"
	"testing"
)

// greed takes until it is refused, and returns how many it got and why no more.
func greed(s *Shares, uid uint32) (n int, err error) {
	for {
		if err := s.Take(uid); err != nil {
			return n, err
		}
		n++
	}
}

func TestNobodyHasAllButRootAndTheOwner(t *testing.T) {
	for uid, want := range map[uint32]int{0: 800, 1000: 800, 2000: 300} {
		if got, _ := greed(New(800, 1000), uid); got != want {
			t.Errorf("user %d got %d of 800, want %d", uid, got, want)
		}
	}
}

func TestOthersLeaveAQuarterAndWhoComesLaterFindsSomething(t *testing.T) {
	s := New(800, 1000)
	all, last := 0, 600
	for uid := range uint32(8) {
		got, err := greed(s, 2000+uid)
		if got < last/2-1 || got == 0 || !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("user %d got %d after one that got %d: %v", 2000+uid, got, last, err)
		}
		all, last = all+got, got
	}
	if all > 600 {
		t.Errorf("they got %d of 800, want no more than 600", all)
	}
	if got, err := greed(s, 0); got != 800-all || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("root got %d of the %d that are left: %v", got, 800-all, err)
	}
}

func TestWhatIsGivenBackCanBeTaken(t *testing.T) {
	s := New(80, 1000)
	for _, uid := range []uint32{2000, 0} {
		n, _ := greed(s, uid)
		for range n {
			s.Give(uid)
		}
		if s.used != 0 || s.others != 0 || len(s.users) != 0 {
			t.Errorf("user %d gave all back, and left %+v", uid, *s)
		}
	}
}
