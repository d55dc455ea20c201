package staging

import (
	"errors"
	"testing"
	"time"
)

// nothing is open.
func nothing() {}

// expect compares what is counted.
func expect(t *testing.T, u *Usage, want int64) {
	t.Helper()
	if got, err := u.Bytes(0, nothing); err != nil || got != want {
		t.Errorf("files occupy %d bytes, %v, want %d", got, err, want)
	}
}

func TestOnlyWhatChangedIsMeasured(t *testing.T) {
	sizes, asked := map[uint64]int64{1: 10, 2: 20, 3: 30}, 0
	u := NewUsage(func(id uint64) (int64, error) { asked++; return sizes[id], nil })
	for id := range sizes {
		u.Changed(id)
	}
	expect(t, u, 60)
	asked, sizes[2] = 0, 25
	expect(t, u, 60)
	u.Changed(2)
	u.Changed(2)
	expect(t, u, 65)
	u.Forget(3)
	u.Forget(4)
	expect(t, u, 35)
	u.Changed(1)
	u.Forget(1)
	expect(t, u, 25)
	if asked != 1 {
		t.Errorf("the disk was asked %d times, want once", asked)
	}
}

// What is open is measured at each look, and a look that is not old is not repeated.
func TestWhatIsOpenIsMeasuredAtEachLook(t *testing.T) {
	size := int64(0)
	u := NewUsage(func(uint64) (int64, error) { return size, nil })
	for size = range int64(3) {
		if got, err := u.Bytes(0, func() { u.Changed(7) }); err != nil || got != size {
			t.Errorf("%d bytes, %v, want %d", got, err, size)
		}
	}
	if got, err := u.Bytes(time.Hour, func() { t.Error("it looks again") }); err != nil || got != 2 {
		t.Errorf("%d bytes, %v, want 2", got, err)
	}
}

// A file that goes while the disk is asked for it is not counted afterwards.
func TestFileThatGoesDuringALookIsForgotten(t *testing.T) {
	var u *Usage
	u = NewUsage(func(id uint64) (int64, error) { u.Forget(id); return 10, nil })
	u.Changed(1)
	expect(t, u, 0)
}

// What could not be measured is measured by the next look.
func TestFailedLookIsRepeated(t *testing.T) {
	failed := errors.New("no answer")
	fail := failed
	u := NewUsage(func(uint64) (int64, error) { return 10, fail })
	u.Changed(1)
	u.Changed(2)
	if _, err := u.Bytes(0, nothing); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want %v", err, failed)
	}
	fail = nil
	expect(t, u, 20)
}
