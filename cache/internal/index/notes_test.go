package index

import (
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

func TestNotesInTheIndexAreBounded(t *testing.T) {
	ix, _, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ix.Close(); err != nil {
			t.Error(err)
		}
	}()
	const most = 10
	for i := range 35 {
		if err := ix.StoreNotes(map[content.Identity][]byte{noteID(i): []byte(fmt.Sprint(i))}, most); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 35 {
		note, old, err := ix.Note(noteID(i))
		if err != nil {
			t.Fatal(err)
		}
		// The first three generations were full.
		if kept := i >= 20; kept != (note != nil) || kept && (string(note) != fmt.Sprint(i) || old != (i < 30)) {
			t.Errorf("note %d is %q, old %t", i, note, old)
		}
	}
}

func noteID(i int) content.Identity {
	return content.Identify("", oss.Object{Key: fmt.Sprint(i), ETag: "A", Size: 1})
}
