package mounting

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/audit"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/prefetch/control"
)

// openAudit opens the audit, if one is asked for. It is closed after all that it is told by.
func (d *Daemon) openAudit(context.Context) error {
	c := &d.Settings.Config
	if c.Audit == "" {
		return nil
	}
	log, err := audit.Open(audit.Config{
		To: c.Audit, Full: c.AuditFull, Source: d.Source.String(), MountPoint: d.At, Version: d.Version,
	}, d.registry, d.Log.Logger)
	if err != nil {
		return d.Settings.Refuse("audit", err)
	}
	d.audit = log
	d.opens("audit", log.Close)
	return nil
}

// auditor returns what fs tells of operations, nil without an audit.
func (d *Daemon) auditor() pailfs.Auditor {
	if d.audit == nil {
		return nil
	}
	return d.audit
}

// called tells the audit of a call of the control channel.
func (d *Daemon) called(ctx context.Context, c control.Caller, method string, params json.RawMessage) func(control.Code) {
	// Who may unmount must not wait for an audit that nobody can write.
	waits := func() bool {
		c.PID, _ = pailfs.ProcessOf(c.TID)
		return !d.mux.MayOwn(c)
	}
	answered := d.audit.Call(ctx, pailfs.Caller{UID: c.UID, GID: c.GID, TID: c.TID, Dir: c.Dir}, method, waits, params)
	return func(code control.Code) { answered(string(code)) }
}

// auditWarning says that the audit is not written, "" while it is.
func (d *Daemon) auditWarning() string {
	if d.audit == nil {
		return ""
	}
	s := d.audit.Status()
	if s.Error == "" {
		return ""
	}
	then := "operations go on, and records that find no room are counted"
	if s.Full == audit.Block {
		then = "operations wait when there is no room"
	}
	return fmt.Sprintf("the audit cannot be written to %s since %s: %s: %s", s.To, s.Since.UTC().Format(time.RFC3339), s.Error, then)
}
