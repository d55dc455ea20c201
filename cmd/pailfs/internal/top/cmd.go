package top

import (
	"context"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// Cmd is `pailfs top`.
type Cmd struct {
	MountPoint string          `arg:"" optional:"" name:"mountpoint" help:"Show this mount alone, also while it is away."`
	Once       bool            `name:"once" help:"Look twice, show one report and end."`
	JSON       bool            `name:"json" help:"Print a JSON document a look, each on a line of its own."`
	Interval   config.Duration `name:"interval" default:"2s" placeholder:"TIME" help:"Time between two looks."`
	Timeout    config.Duration `name:"timeout" default:"3s" placeholder:"TIME" help:"How long the mounts may take to answer, all at once."`
}

// Help gives examples.
func (Cmd) Help() string {
	return `Shows what mounts do in a second: reads by tier, hit ratios, latencies, the link to the object store, uploads and what they wait for, sessions of loaders, and the processes that have files open. At a terminal it is a screen that is drawn anew: arrows scroll and choose a mount, ? explains, q ends. Elsewhere it prints a line a mount. Rates need two looks. OUTPUT.md says what --json gives.

Exit codes: 0 ended by q or an interrupt, or --once was shown; 1 there is no such mount, or the mounts cannot be listed; 2 wrong arguments; 3 with --once: a mount is dead or hung.

Examples:

	pailfs top
	pailfs top /mnt/data
	pailfs top --once /mnt/data
	pailfs top --json --interval 10s | jq '.mounts[].rates.oss.bytes_per_second'`
}

// leastInterval keeps looking from being what the daemons do.
const leastInterval = 100 * time.Millisecond

// Run shows the mounts.
func (c *Cmd) Run(p command.Program) error {
	if time.Duration(c.Interval) < leastInterval || c.Timeout <= 0 {
		return command.Usage(fmt.Errorf("--interval %s, --timeout %s: an interval is %s or more, and a timeout more than nothing", c.Interval, c.Timeout, leastInterval))
	}
	w := newWatcher(time.Duration(c.Timeout))
	if c.MountPoint != "" {
		at, _, err := ask.At(c.MountPoint)
		if err != nil {
			return err
		}
		w.only = at
	}
	ctx, stop := command.Interruptible()
	defer stop()
	switch {
	case c.Once:
		return c.once(ctx, p, w)
	case !c.JSON && terminal.Is(p.Stdin) && terminal.Is(p.Stdout):
		return runScreen(ctx, p, w, time.Duration(c.Interval))
	}
	return c.follow(ctx, p, w)
}

// once shows one frame, of two looks.
func (c *Cmd) once(ctx context.Context, p command.Program, w *watcher) error {
	if _, err := w.frame(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(c.Interval)):
	case <-ctx.Done():
		return ctx.Err()
	}
	f, err := w.frame(ctx)
	if err != nil {
		return err
	}
	show := writeText
	if c.JSON {
		show = writeJSON
	}
	err = show(p.Stdout, f)
	if err == nil && f.unwell() {
		return &command.Error{Code: ask.ExitDead}
	}
	return err
}

// follow prints frames until it is interrupted.
func (c *Cmd) follow(ctx context.Context, p command.Program, w *watcher) error {
	show := new(lines).write
	if c.JSON {
		show = writeJSON
	}
	for {
		f, err := w.frame(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := show(p.Stdout, f); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(c.Interval)):
		case <-ctx.Done():
			return nil
		}
	}
}
