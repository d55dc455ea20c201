package mounting

import (
	"fmt"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
)

// askTheOwner stands where a stranger is not told a name.
const askTheOwner = "root and the user who mounted are told which"

// statusForStranger takes out of the report what only those may know whom the mount belongs to:
// names of files, which may lie where the caller may not look. The counts stay.
func statusForStranger(r *wire.Status, caller control.Caller) {
	for i := range r.Loader.Sessions {
		if s := &r.Loader.Sessions[i]; s.Shared {
			s.Task = caller.Seen(s.Task)
		}
	}
	r.FileSystem.Problems.Examples = nil
	if r.Manifest.Damage != "" {
		r.Manifest.Damage = askTheOwner
	}
	if w := r.Writing; w != nil {
		w.Retrying, w.Failing, w.Restless, w.Conflicts, w.Suspects = nil, nil, nil, nil, nil
	}
}

// statusForContainer takes out of what a stranger is told the paths of the host as well: whoever
// sees a part of the mount, or lives beside the host as in a container, has no use for them.
func statusForContainer(r *wire.Status) {
	r.MountPoint, r.FileSystem.Mountpoint, r.Log = "", "", ""
	r.FileSystem.Passthrough.Reason, r.FileSystem.ReadAheadReason = askTheOwner, ""
	if a := r.Audit; a != nil {
		a.To = ""
		if a.Error != "" {
			a.Error = askTheOwner
		}
	}
	if m := &r.Manifest; m.File != "" {
		m.Asked, m.File, m.Reason = "", "", askTheOwner
	}
	if n := len(r.Warnings); n > 0 {
		r.Warnings = []string{fmt.Sprintf("%d of them: %s", n, askTheOwner)}
	}
	if c := &r.Store.Credentials; c.Error != "" {
		c.Error = askTheOwner
	}
	if r.Cache.SSD != nil {
		ssd := *r.Cache.SSD
		ssd.Dir = ""
		if ssd.LastError != "" {
			ssd.LastError = askTheOwner
		}
		r.Cache.SSD = &ssd
	}
}

// flushForStranger does the same with the answer of flush.
func flushForStranger(a *wire.FlushAnswer) {
	a.Paths = nil
	if a.Error != "" {
		a.Error = "not all of it can be published as things are: " + askTheOwner
	}
}
