package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// framed appends a record that says text.
func framed(b []byte, text string) []byte {
	return Frame(b, func(b []byte) []byte { return append(b, text...) })
}

// bodies returns what a journal says, and how many bytes follow that say nothing.
func bodies(t *testing.T, b []byte) (said []string, rest int64) {
	t.Helper()
	good, rest, err := Replay(bytes.NewReader(b), int64(len(b)), func(body []byte, _ int64) error {
		said = append(said, string(body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if good+rest != int64(len(b)) {
		t.Errorf("%d bytes are good and %d are not, of %d", good, rest, len(b))
	}
	return said, rest
}

func TestReplayStopsAtTheFirstBadRecord(t *testing.T) {
	whole := Header()
	var ends []int
	for i := range 5 {
		whole = framed(whole, fmt.Sprint("record ", i))
		ends = append(ends, len(whole))
	}
	for cut := headerSize; cut <= len(whole); cut++ {
		want := 0
		for _, end := range ends {
			if end <= cut {
				want++
			}
		}
		got, rest := bodies(t, whole[:cut])
		if len(got) != want {
			t.Errorf("cut at %d: %d records, want %d", cut, len(got), want)
		}
		if whole := cut == headerSize || want > 0 && ends[want-1] == cut; (rest == 0) != whole {
			t.Errorf("cut at %d: %d bytes left over", cut, rest)
		}
	}
	for at := headerSize; at < len(whole); at++ {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		if got, rest := bodies(t, b); rest == 0 || len(got) == 5 {
			t.Errorf("damage at %d: %d records, %d bytes left over", at, len(got), rest)
		}
	}
}

// What is no journal of ours is refused, and not taken for one that is cut off.
func TestJournalOfAnotherFormatIsRefused(t *testing.T) {
	newer := Header()
	newer[8]++
	damaged := Header()
	damaged[14] ^= 1
	for want, b := range map[string][]byte{
		"not a journal": []byte("something else of more than 16 bytes"),
		"is not":        Header()[:headerSize-1],
		"version 2":     newer,
		"damaged":       damaged,
	} {
		if _, _, err := Replay(bytes.NewReader(b), int64(len(b)), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", b, err, want)
		}
	}
}

// What follows the last good record is kept, and the journal goes on where that ends.
func TestWhatIsSetAsideIsKept(t *testing.T) {
	dir := t.TempDir()
	whole := framed(framed(Header(), "one"), "two")
	torn := whole[:len(whole)-1]
	if err := Create(&plainDisk{}, dir, torn); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	said, rest := bodies(t, torn)
	good := int64(len(torn)) - rest
	kept, err := SetAside(&plainDisk{}, dir, file, good, rest)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || !bytes.Equal(b, torn[good:]) || !strings.HasPrefix(filepath.Base(kept), RestPrefix) {
		t.Errorf("%s has %q, %v, want %q", kept, b, err, torn[good:])
	}
	l, err := Open(&plainDisk{}, dir, "boot", file, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(say(l, "three")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, rest := bodies(t, read(t, dir)); !slices.Equal(got, append(said, "three")) || rest != 0 {
		t.Errorf("the journal says %q, and %d bytes more", got, rest)
	}
}

// tornJournal makes a journal of one record, and of rest bytes after it that are none.
func tornJournal(t *testing.T, rest int64) (dir string, file *os.File, good int64) {
	t.Helper()
	dir = t.TempDir()
	whole := framed(Header(), "one")
	if err := Create(&plainDisk{}, dir, whole); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	good = int64(len(whole))
	if err := file.Truncate(good + rest); err != nil {
		t.Fatal(err)
	}
	return dir, file, good
}

// size returns that of a file.
func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Nothing is cut off before the disk has all of it elsewhere, however much that is.
func TestWhatIsSetAsideIsOnTheDiskBeforeItIsCutOff(t *testing.T) {
	const rest = 64<<20 + 5
	dir, file, good := tornJournal(t, rest)
	var events []string
	note := func(what string) {
		events = append(events, fmt.Sprintf("%s while the journal has %d more", what, size(t, file.Name())-good))
	}
	d := &plainDisk{
		synced:  func(f *os.File) { note(fmt.Sprintf("%.12s of %d synced", filepath.Base(f.Name()), size(t, f.Name()))) },
		renamed: func() { note("directory synced") },
	}
	kept, err := SetAside(d, dir, file, good, rest)
	if err != nil {
		t.Fatal(err)
	}
	if got := size(t, kept); got != rest {
		t.Errorf("%d bytes were kept of %d", got, rest)
	}
	want := []string{
		fmt.Sprintf("journal.rest of %d synced while the journal has %d more", rest, rest),
		fmt.Sprintf("directory synced while the journal has %d more", rest),
		fmt.Sprintf("journal.log of %d synced while the journal has 0 more", good),
	}
	if !slices.Equal(events, want) {
		t.Errorf("it happened in this order: %q, want %q", events, want)
	}
}

// What cannot be kept is not cut off, and nothing is left of the attempt.
func TestWhatCannotBeSetAsideStays(t *testing.T) {
	failed := errors.New("no room")
	for name, fail := range map[string][2]error{"the file": {failed, nil}, "its name": {nil, failed}} {
		dir, file, good := tornJournal(t, 10)
		d := &plainDisk{}
		d.fail(nil, fail[0], fail[1])
		if _, err := SetAside(d, dir, file, good, 10); !errors.Is(err, failed) || !strings.Contains(err.Error(), "10 bytes") {
			t.Errorf("%s: %v, want %v", name, err, failed)
		}
		if got := size(t, file.Name()); got != good+10 {
			t.Errorf("%s: the journal has %d bytes, want %d", name, got, good+10)
		}
		if left, err := filepath.Glob(filepath.Join(dir, RestPrefix+"*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %q is left, %v", name, left, err)
		}
	}
}

// FuzzReplay: whatever a file holds, what is good of it says the same when it is written
// again, and each record is found where it was said to be.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{})
	f.Add(framed(framed(nil, "one"), "two"))
	f.Add(framed(nil, "torn")[:9])
	f.Add(append(framed(nil, "one"), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, frames []byte) {
		b := append(Header(), frames...)
		again := Header()
		good, rest, err := Replay(bytes.NewReader(b), int64(len(b)), func(body []byte, at int64) error {
			if at != int64(len(again)) {
				t.Fatalf("a record is said to be at %d, want %d", at, len(again))
			}
			var window []byte
			found, ok, err := readFrame(bytes.NewReader(b), at, int64(len(b)), &window)
			if err != nil || !ok || !bytes.Equal(found, body) {
				t.Fatalf("at %d there is %q, %v, %v, want %q", at, found, ok, err, body)
			}
			again = framed(again, string(body))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if good+rest != int64(len(b)) || !bytes.Equal(again, b[:good]) {
			t.Fatalf("%d of %d bytes are good and %d are not; written again they are %q, want %q", good, len(b), rest, again, b[:good])
		}
	})
}
