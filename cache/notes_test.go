package cache

import (
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

func noted(i int) oss.Object { return oss.Object{Key: fmt.Sprint(i), ETag: "A", Size: 1} }

func TestNotesSurviveARestart(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	c.SetNote(noted(1), []byte("one"))
	c.SetNote(noted(2), nil)
	c.SetNote(noted(3), make([]byte, maxNote+1))
	closeCache(t, c)
	c = openCache(t, s, Config{Dir: dir})
	defer closeCache(t, c)
	for i, want := range []string{"no", "one", "", "no"} {
		got, ok := c.Note(noted(i))
		if ok != (want != "no") || ok && string(got) != want {
			t.Errorf("note %d is %q, %t", i, got, ok)
		}
	}
	other := noted(1)
	other.ETag = "B"
	if _, ok := c.Note(other); ok {
		t.Error("another version has the note")
	}
}

func TestNotesInMemoryAreBounded(t *testing.T) {
	c := openCache(t, newFakeStore(), Config{})
	defer closeCache(t, c)
	for i := range 3 * notesInMemory {
		c.SetNote(noted(i), []byte("note"))
		if _, ok := c.Note(noted(0)); !ok {
			t.Fatal("a note that is used was forgotten")
		}
	}
	if n := len(c.notes.mu.young) + len(c.notes.mu.old); n > 2*notesInMemory {
		t.Errorf("%d notes are in memory", n)
	}
	if _, ok := c.Note(noted(1)); ok {
		t.Error("a note that nobody used is still there")
	}
}
