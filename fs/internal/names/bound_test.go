package names

import (
	"errors"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback"
)

// fill makes fifos of a user until it may make no more, and returns how many, and why no more.
func (l *Specials) fill(uid uint32) (made int, err error) {
	for ; err == nil; made++ {
		_, err = l.Make(strconv.FormatUint(uint64(uid), 10), strconv.Itoa(made), Fifo, writeback.CreateOptions{UID: uid})
	}
	return made - 1, err
}

// TestSpecialsHaveABound: names that are only in memory cannot take all of it, and one user
// cannot have all of them.
func TestSpecialsHaveABound(t *testing.T) {
	l := Specials{Clock: func() int64 { return 0 }}
	all := 0
	for _, u := range []struct {
		uid   uint32
		most  int
		errno error
	}{
		{2001, specialsMost * 3 / 8, unix.EDQUOT},
		{2002, specialsMost * 3 / 16, unix.EDQUOT},
		{0, specialsMost * 7 / 16, unix.ENOSPC},
	} {
		made, err := l.fill(u.uid)
		if all += made; made != u.most || !errors.Is(err, u.errno) {
			t.Errorf("user %d made %d, want %d, and then %v", u.uid, made, u.most, err)
		}
	}
	if all != specialsMost {
		t.Errorf("there are %d, want %d", all, specialsMost)
	}
	// What is removed or replaced is given back to who made it; a rename alone is not. Of
	// root's nothing is left to others.
	l.Drop("2002", "0")
	l.Rename("2002", "1", "2002", "2")
	l.Rename("2002", "3", "elsewhere", "3")
	if made, err := l.fill(2002); made != 2 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%d more after two went, then %v", made, err)
	}
}

// TestWhoMadeASpecialIsCharged: not who owns it later.
func TestWhoMadeASpecialIsCharged(t *testing.T) {
	l := Specials{Clock: func() int64 { return 0 }}
	s, err := l.Make("dir", "name", Socket, writeback.CreateOptions{UID: 2001})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.uid = 2002
	if made, _ := l.fill(2001); made != specialsMost*3/8-1 {
		t.Errorf("its maker made %d more", made)
	}
	if l.Drop("dir", "name") != s {
		t.Error("it was not there")
	}
	if _, err = l.Make("dir", "again", Fifo, writeback.CreateOptions{UID: 2001}); err != nil {
		t.Error(err)
	}
}
