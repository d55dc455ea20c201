package mounting

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// umounts is what is known of attempts to unmount.
type umounts struct {
	// liveness asks the mount, through the kernel, whether it answers.
	liveness *mountpoint.Prober
	// requests carries what umount asks from the control channel to Run.
	requests chan wire.UmountParams
	// last is how the last attempt ended.
	last atomic.Pointer[wire.UmountState]
	// leave says that what is not published is to stay for the next mount.
	leave bool
}

// umountPoll is how long after a failed attempt the daemon tries again for a caller of umount.
const umountPoll = 20 * time.Millisecond

// unmountRetry is how long after a failed attempt the daemon tries to unmount
// again, while it has been told to stop and something uses the mount.
const unmountRetry = time.Second

// lingerPatience is how long the kernel may keep the connection after the mount
// was taken away here. Longer than a moment means that a mount namespace made
// meanwhile still shows it.
const lingerPatience = 5 * time.Second

// Run serves until the mount has ended, by whoever's hand, and then closes the
// parts: control channel, names, cache, object store, metrics. Every end of the
// mount that is not the daemon's death is a clean one.
//
// A signal makes it try to unmount until that works; the daemon serves on
// meanwhile. A request through the control channel makes it try for
// wire.UmountPatience, long enough for the caller to let the mount go. A second signal
// and a request by force end the mount whoever uses it.
func (d *Daemon) Run(s *Signals) error {
	ended := make(chan struct{})
	go func() {
		d.mount.Wait()
		close(ended)
	}()
	d.notify.ready(d.Source, d.At)
	stopWatch := d.notify.watch(d.umounts.liveness)
	defer stopWatch()

	var again <-chan time.Time   // when to try again, nil if not trying
	var until time.Time          // when a request is given up
	var forced <-chan time.Time  // when to end the mount, nil if nobody asked for it
	var lingers <-chan time.Time // when a mount that is gone here is ended everywhere
	signalled := false
	for {
		select {
		case <-ended:
			return d.finish()
		case <-s.reopen:
			d.Log.Reopen()
			if d.audit != nil {
				d.audit.Reopen()
			}
		case <-s.drain:
			d.draining.begin("SIGUSR1", time.Now().Add(drainNotice))
		case request := <-d.umounts.requests:
			if request.Force {
				d.umounts.leave = true
				forced = time.After(forceDelay)
				continue
			}
			until = time.Now().Add(wire.UmountPatience)
			if d.unmount(request.Lazy) != nil {
				again = time.After(umountPoll)
			} else if !request.Lazy {
				lingers = time.After(lingerPatience)
			}
		case <-forced:
			return d.force(ended)
		case sig := <-s.end:
			if signalled {
				d.Log.Warn("told to stop again", "signal", sig.String())
				return d.force(ended)
			}
			signalled = true
			d.Log.Info("stopping", "signal", sig.String())
			if d.writing != nil {
				d.writing.space.SetDraining(true)
			}
			d.notify.stopping()
			if d.unmount(false) == nil || d.unmounted() {
				lingers = time.After(lingerPatience)
			} else {
				d.Log.Warn("the mount is in use; waiting until it is not. A second signal ends it all the same", "mountpoint", d.At, "users", d.holders(0))
				again = time.After(unmountRetry)
			}
		case <-lingers:
			d.Log.Warn("the mount is gone here, but another mount namespace still shows it; it ends there too", "mountpoint", d.At)
			return d.force(ended)
		case <-again:
			again = nil
			switch err := d.unmount(false); {
			case err == nil, d.unmounted():
				lingers = time.After(lingerPatience)
			case time.Now().Before(until):
				again = time.After(umountPoll)
			case signalled:
				again = time.After(unmountRetry)
			}
		}
	}
}

// unmount tries to unmount once and remembers how that went.
func (d *Daemon) unmount(lazy bool) error {
	err := mountpoint.Unmount(d.At, lazy)
	state := wire.UmountState{At: time.Now(), Busy: errors.Is(err, mountpoint.ErrBusy)}
	if err != nil {
		state.Error = err.Error()
	}
	d.umounts.last.Store(&state)
	return err
}

// unmounted tells whether nothing is mounted where the daemon mounted, as far as
// its own mount namespace is concerned.
func (d *Daemon) unmounted() bool {
	_, mounted, err := mountpoint.At(d.At)
	return err == nil && !mounted
}

// holders returns who uses the mount, for people, without the process except.
func (d *Daemon) holders(except int) []string {
	m, ok, err := mountpoint.At(d.At)
	if err != nil || !ok {
		return nil
	}
	var users []string
	for _, h := range mountpoint.Holders(m) {
		if h.PID != except {
			users = append(users, h.String())
		}
	}
	return users
}

// forceDelay lets the answer to who asked for force out before the connection that
// carries it is cut.
const forceDelay = 100 * time.Millisecond

// forcePatience is how long the kernel may take to tell us that it has ended the
// connection.
const forcePatience = 2 * time.Second

// force takes the name away from a mount that is in use and ends the connection
// to the kernel, so that its users get errors rather than wait for ever.
func (d *Daemon) force(ended <-chan struct{}) error {
	m, mounted, err := mountpoint.At(d.At)
	if err != nil {
		return errors.Join(err, d.finish())
	}
	if mounted {
		d.Log.Warn("unmounting although the mount is in use; its users get errors", "mountpoint", d.At, "users", d.holders(0))
		if err := d.unmount(true); err != nil {
			d.Log.Error("cannot unmount", "error", err)
		}
		if err := mountpoint.Abort(m); err != nil {
			d.Log.Warn("cannot end the connection to the kernel; it ends with this process", "error", err)
		}
	}
	select {
	case <-ended:
	case <-time.After(forcePatience):
	}
	return d.finish()
}

// finish closes the parts after the mount has ended.
func (d *Daemon) finish() error {
	d.notify.stopping()
	err := errors.Join(d.drain(), d.close())
	if err != nil {
		d.Log.Error("stopped with errors", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	d.Log.Info("unmounted", "source", d.Source.String(), "mountpoint", d.At, "uptime", time.Since(d.started).Round(time.Second).String())
	return nil
}
