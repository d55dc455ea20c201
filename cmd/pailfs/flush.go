package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
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
func (c *flushCmd) Run(p program) error {
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
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.Timeout))
		defer cancel()
	}
	err = p.flush(ctx, m.Path, path)
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
func (p program) flush(ctx context.Context, at, path string) error {
	bar := progressBar{to: p}
	defer bar.end()
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
			return fmt.Errorf("given up with %d changes left, %s: %s", a.Left, humanSize(a.Bytes), a.names())
		}
		most, begun = max(most, a.Bytes), a.Begun
		bar.show(most-a.Bytes, most, fmt.Sprintf("%d changes left", a.Left))
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

// progressBar shows progress on one line of a terminal, and nothing elsewhere.
type progressBar struct {
	to    program
	shown bool
}

// barWidth is how many characters the bar has.
const barWidth = 30

func (b *progressBar) show(done, of int64, text string) {
	if !b.to.atTerminal() {
		return
	}
	filled := 0
	if of > 0 {
		filled = int(barWidth * done / of)
	}
	fmt.Fprintf(b.to.stderr, "\r\033[K[%s%s] %s of %s, %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled),
		humanSize(done), humanSize(of), text)
	b.shown = true
}

func (b *progressBar) end() {
	if b.shown {
		fmt.Fprint(b.to.stderr, "\r\033[K")
	}
}
