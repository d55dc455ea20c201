package wire

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pailfs/pailfs/fs/writeback"
)

// StagingName is the directory in cache-dir that holds what was written and is not in the object
// store yet.
const StagingName = "staging"

// ListedAtEnd is how many paths are named where something was left.
const ListedAtEnd = 20

// EndName is the file in cache-dir that says what the last mount left.
const EndName = "last-end.json"

// Ending is what a daemon that has ended leaves for who waits for it: a file in
// cache-dir.
type Ending struct {
	// PID is the daemon's.
	PID int `json:"pid"`
	// Left counts the changes that are not in the object store, Paths names some.
	Left  int                      `json:"left"`
	Paths []writeback.PendingEntry `json:"paths,omitempty"`
}

// Err says what was left, nil if nothing was.
func (e Ending) Err() error {
	if e.Left == 0 {
		return nil
	}
	var list strings.Builder
	for i, p := range e.Paths {
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "%s (%s", p.Path, p.State)
		if p.Error != "" {
			fmt.Fprintf(&list, ": %s", p.Error)
		}
		list.WriteString(")")
	}
	if more := e.Left - len(e.Paths); more > 0 {
		fmt.Fprintf(&list, " and %d more", more)
	}
	return fmt.Errorf("%d changes are not in the object store and stay in cache-dir for the next mount: %s", e.Left, list.String())
}

// Write leaves word in cache-dir.
func (e Ending) Write(dir string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, EndName)
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// ReadEnding returns what the daemon with that process id left word of.
func ReadEnding(dir string, pid int) (e Ending, err error) {
	text, err := os.ReadFile(filepath.Join(dir, EndName))
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	if e.PID != pid {
		return e, fmt.Errorf("it was written by process %d, not %d", e.PID, pid)
	}
	return e, nil
}
