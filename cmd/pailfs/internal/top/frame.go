package top

import (
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
)

// gone is the health of a mount that was asked for and is not mounted now.
const gone = "gone"

// Frame is what `pailfs top --json` prints of one look. Fields may be added; what is here keeps
// its name and meaning.
type Frame struct {
	Time   time.Time `json:"time"`
	Mounts []Mount   `json:"mounts"`
}

// unwell reports whether a mount is dead, hung or gone.
func (f Frame) unwell() bool {
	for _, m := range f.Mounts {
		switch m.Health {
		case string(look.Dead), string(look.Hung), gone:
			return true
		}
	}
	return false
}

// Mount is what is shown of one mount.
type Mount = overview.Mount

// newMount returns what is shown of a look, without rates.
func newMount(seen look.Seen, users []mountpoint.User) Mount {
	var m Mount
	if seen.Status != nil {
		m = overview.New(seen.Status, seen.At)
	}
	m.Source, m.MountPoint, m.Health, m.Reasons, m.Readers = seen.Source, seen.Path, string(seen.Health), seen.Reasons, users
	return m.Filled()
}
