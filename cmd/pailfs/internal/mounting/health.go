package mounting

import (
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/web"
)

// health asks the mount through the kernel. A store that is down or refuses us
// does not make the mount unhealthy: what is cached can be read, and starting the
// daemon again would help nothing.
func (d *Daemon) health() web.Health {
	h := web.Health{Status: "ok", Mount: "alive", Credentials: "ok", Access: "ok"}
	if err := d.store.credentials.Status().Err; err != nil {
		h.Credentials = err.Error()
	}
	if access := d.store.client.Access(); access.Refused {
		h.Access = "refused since " + access.Since.UTC().Format(time.RFC3339) + ": " + access.Reason
	}
	switch state, err := d.umounts.liveness.Probe(mountpoint.Patience); {
	case err != nil:
		h.Status, h.Mount = "failing", err.Error()
	case state == mountpoint.Dead:
		h.Status, h.Mount = "failing", "dead"
	case state == mountpoint.Stuck:
		h.Status, h.Mount = "failing", "stuck"
	}
	return h
}
