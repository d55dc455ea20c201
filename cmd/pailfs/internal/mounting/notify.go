package mounting

import (
	"log/slog"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

// notifier tells the service manager how the daemon is, if one listens.
type notifier struct {
	log *slog.Logger
}

func newNotifier(log *slog.Logger) *notifier { return &notifier{log: log} }

// tell sends a state. Without a service manager it does nothing.
func (n *notifier) tell(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		n.log.Warn("cannot tell the service manager", "state", state, "error", err)
	}
}

// ready says that the mount can be used.
func (n *notifier) ready(source config.Location, at string) {
	n.tell(systemd.SdNotifyReady + "\nSTATUS=" + source.String() + " is mounted at " + at)
}

// stopping says that the daemon is about to end.
func (n *notifier) stopping() { n.tell(systemd.SdNotifyStopping + "\nSTATUS=stopping") }

// watch keeps the service manager's watchdog from ending the daemon, for as long
// as the mount answers through the kernel. The returned function stops it and
// waits for it.
func (n *notifier) watch(mount *mountpoint.Prober) (stop func()) {
	period, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the service manager's watchdog cannot be understood", "error", err)
	}
	if err != nil || period == 0 {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(period / 3)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				if state, err := mount.Probe(period / 3); err == nil && state == mountpoint.Alive {
					n.tell(systemd.SdNotifyWatchdog)
				} else {
					n.log.Error("the mount does not answer; the watchdog is not told", "error", err)
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
