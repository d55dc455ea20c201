package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
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
	at, m, err := findMountAbove(c.Path)
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
		return deadMount(m)
	case err != nil:
		return fmt.Errorf("flush %s: %w", c.Path, err)
	}
	return nil
}

// flush asks the daemon of the mount at until everything at path is in the object
// store, showing at a terminal how far it is.
func flush(ctx context.Context, p command.Program, at, path string) error {
	bar := terminal.NewByteProgress(p.Stderr)
	defer bar.Clear()
	most, begun := int64(0), time.Time{}
	for {
		var a flushAnswer
		call, cancel := flushCall(ctx)
		err := callDaemon(call, at, methodFlush, flushParams{Path: path, Begun: begun}, &a)
		cancel()
		switch {
		case errors.Is(err, &control.Error{Code: control.CodeUntold}) && ctx.Err() == nil:
			select {
			case <-time.After(untoldPause):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return err
		case a.Done:
			return nil
		case a.Error != "":
			return errors.New(a.Error)
		case ctx.Err() != nil:
			return fmt.Errorf("given up with %d changes left, %s: %s", a.Left, terminal.Size(a.Bytes), a.names())
		}
		most, begun = max(most, a.Bytes), a.Begun
		bar.Show(fmt.Sprintf("%d changes left", a.Left), most-a.Bytes, most)
	}
}

// untoldPause is the time between two questions while the daemon cannot tell who may ask.
const untoldPause = time.Second

// flushPatience is how long a daemon may take to say how far it is. On a machine that is
// busy it takes longer than a statfs, and to give up then would be to fail for nothing.
const flushPatience = time.Minute

// flushCall returns the context of one question. It outlives ctx by a moment, so that the
// last answer still says what is left.
func flushCall(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushPatience)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-call.Done():
		case <-time.After(probePatience):
			cancel()
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}

// names returns the paths of what is left, for people.
func (a flushAnswer) names() string {
	names := make([]string, 0, len(a.Paths)+1)
	for _, e := range a.Paths {
		names = append(names, fmt.Sprintf("%s (%s)", e.Path, e.State))
	}
	if more := a.Left - len(a.Paths); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
