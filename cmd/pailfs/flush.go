package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/prefetch/control"
)

// flushCmd is `pailfs flush`.
type flushCmd struct {
	Path    string          `arg:"" placeholder:"PATH" help:"A file or directory of a mount, or the mount itself."`
	Timeout config.Duration `name:"timeout" default:"0s" placeholder:"TIME" help:"Give up after this long; 0s waits for ever."`
}

// Help gives examples.
func (flushCmd) Help() string {
	return `Returns when everything that was closed at or below PATH is in the object store. Uploads are then neither paced nor held back.

Exit codes: 0 all of it is there, 1 something is not (it is named), 2 wrong arguments, 3 the daemon is dead.

Examples:

	pailfs flush /mnt/ckpt/step-500
	pailfs flush /mnt --timeout 60s`
}

// Run waits.
func (c *flushCmd) Run(p command.Program) error {
	at, m, err := ask.Above(c.Path)
	if err != nil {
		return err
	}
	path, err := filepath.Rel(m.Path, at)
	if err != nil {
		return fmt.Errorf("flush %s: %w", c.Path, err)
	}
	if path == "." {
		path = ""
	}
	ctx, stop := command.Interruptible()
	defer stop()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.Timeout))
		defer cancel()
	}
	err = flush(ctx, p, m.Path, path)
	switch {
	case errors.Is(err, control.ErrDaemonGone):
		return ask.DeadMount(m)
	case err != nil:
		return fmt.Errorf("flush %s: %w", c.Path, err)
	}
	return nil
}

// flush returns when everything at path of the mount at is in the object store, and shows at a
// terminal how far that is.
func flush(ctx context.Context, p command.Program, at, path string) error {
	bar := terminal.NewByteProgress(p.Stderr)
	defer bar.Clear()
	most := int64(0)
	return ask.Flush(ctx, at, path, func(a wire.FlushAnswer) {
		most = max(most, a.Bytes)
		bar.Show(fmt.Sprintf("%d changes left", a.Left), most-a.Bytes, most)
	})
}
