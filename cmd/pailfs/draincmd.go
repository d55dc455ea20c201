package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/prefetch/control"
)

// drainCmd is `pailfs drain`.
type drainCmd struct {
	MountPoint string          `arg:"" name:"mountpoint" help:"The mount, or any directory in it."`
	Within     config.Duration `name:"within" default:"5m" placeholder:"TIME" help:"How long the machine stays, as far as is known."`
	Stop       bool            `name:"stop" help:"Go back to the ordinary: the machine stays."`
}

// Help gives examples.
func (drainCmd) Help() string {
	return `Tells the daemon that the machine is about to go, as a spot notice does (see --spot-notice) and the signal SIGUSR1: prefetching stops, uploads get all the bandwidth, and the log, the status and the metrics say what is safe in the object store and what is not. It returns at once; the mount goes on working. It is for the hooks of whatever knows first, such as a preStop hook.

Examples:

	pailfs drain /mnt/data
	pailfs drain --within 2m /mnt/data && pailfs flush --timeout 110s /mnt/data
	pailfs drain --stop /mnt/data`
}

// Run asks the daemon.
func (c *drainCmd) Run(p command.Program) error {
	at, m, err := ask.Above(c.MountPoint)
	if err != nil {
		return err
	}
	if c.Within <= 0 {
		return command.Usage(fmt.Errorf("--within %s leaves no time: write a duration above zero, for example 5m", c.Within))
	}
	ctx, cancel := context.WithTimeout(context.Background(), mountpoint.Patience)
	defer cancel()
	var r wire.Drain
	err = ask.Call(ctx, at, wire.MethodDrain, wire.DrainParams{Seconds: time.Duration(c.Within).Seconds(), Stop: c.Stop}, &r)
	switch {
	case errors.Is(err, control.ErrDaemonGone):
		return ask.DeadMount(m)
	case errors.Is(err, &control.Error{Code: control.CodeRefused}):
		return fmt.Errorf("drain %s: not permitted: only root and the user who mounted it may", at)
	case err != nil:
		return fmt.Errorf("drain %s: %w", at, err)
	case c.Stop:
		return nil
	case r.Safe:
		fmt.Fprintln(p.Stdout, "everything that was written is in the object store")
		return nil
	}
	fmt.Fprintf(p.Stdout, "%d changes, %s, are not in the object store yet; pailfs status says how far they are\n", r.Unsafe, terminal.Size(r.UnsafeBytes))
	return nil
}
