package mounting

import (
	"slices"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/session"
)

// askTheOwner stands where a stranger is not told a name.
const askTheOwner = "root and the user who mounted are told which"

// statusForStranger takes out of the report what only those may know whom the mount belongs to:
// names of files, which may lie where the caller may not look, and others' tasks. The
// counts stay.
func statusForStranger(r *wire.Status, caller control.Caller) {
	r.Loader.Sessions = slices.DeleteFunc(r.Loader.Sessions, func(s session.Summary) bool { return s.UID != caller.UID })
	r.FileSystem.Problems.Examples = nil
	if r.Manifest.Damage != "" {
		r.Manifest.Damage = askTheOwner
	}
	if w := r.Writing; w != nil {
		w.Retrying, w.Failing, w.Restless, w.Conflicts, w.Suspects = nil, nil, nil, nil, nil
	}
}

// flushForStranger does the same with the answer of flush.
func flushForStranger(a *wire.FlushAnswer) {
	a.Paths = nil
	if a.Error != "" {
		a.Error = "not all of it can be published as things are: " + askTheOwner
	}
}
