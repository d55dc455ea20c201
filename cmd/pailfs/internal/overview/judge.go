package overview

import (
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
)

// The words for how a mount does whose daemon answers.
const (
	// OK: nothing is wrong.
	OK = "ok"
	// Degraded: the daemon says that something is wrong.
	Degraded = "degraded"
)

// Judge says how a mount does whose daemon answered s, [OK] or [Degraded], and what is wrong, the
// gravest first.
func Judge(s *wire.Status, now time.Time) (health string, wrongs []string) {
	var reasons []string
	wrong := func(is bool, format string, args ...any) {
		if is {
			reasons = append(reasons, fmt.Sprintf(format, args...))
		}
	}
	if w := s.Writing; w != nil {
		judgeWriting(w, wrong)
	}
	store := &s.Store
	if r := store.Refused; r != nil {
		wrong(true, "the object store refuses access: %s", r.Reason)
	}
	c := store.Credentials
	wrong(c.Error != "", "the credentials cannot be renewed: %s", c.Error)
	wrong(c.Expires != nil && !now.Before(*c.Expires), "the credentials have expired")
	if d := s.Cache.SSD; d != nil {
		wrong(d.State != "ok", "the cache's disk is %s: %s", d.State, d.LastError)
	}
	wrong(s.Cache.Corrupted > 0, "%d objects did not match the object store's checksum", s.Cache.Corrupted)
	wrong(s.Manifest.Damaged > 0, "the manifest is damaged: %s", s.Manifest.Damage)
	if d := s.Drain; d != nil && !d.Safe {
		wrong(true, "the machine is about to go (%s), and %d changes are not in the object store", d.Reason, d.Unsafe)
	}
	if len(reasons) > 0 {
		return Degraded, reasons
	}
	return OK, nil
}

// judgeWriting names what keeps written files out of the object store.
func judgeWriting(w *writeback.Status, wrong func(is bool, format string, args ...any)) {
	wrong(w.SuspectCount > 0, "the disk lost %d files that were written", w.SuspectCount)
	if w.FailingCount > 0 && len(w.Failing) > 0 {
		wrong(true, "%d uploads fail, such as %s: %s", w.FailingCount, w.Failing[0].Path, w.Failing[0].Error)
	} else {
		wrong(w.FailingCount > 0, "%d uploads fail", w.FailingCount)
	}
}
