package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/prefetch/control"
)

// Flush asks the daemon of the mount at until everything at path is in the object store. It calls
// tell with how far that is.
func Flush(ctx context.Context, at, path string, tell func(wire.FlushAnswer)) error {
	begun := time.Time{}
	for {
		var a wire.FlushAnswer
		call, cancel := flushCall(ctx)
		err := Call(call, at, wire.MethodFlush, wire.FlushParams{Path: path, Begun: begun}, &a)
		cancel()
		switch {
		case errors.Is(err, &control.Error{Code: control.CodeUntold}) && ctx.Err() == nil:
			select {
			case <-time.After(untoldPause):
			case <-ctx.Done():
			}
			continue
		case ctx.Err() != nil && left(err):
			return fmt.Errorf("given up: the daemon does not answer: %w", ctx.Err())
		case err != nil:
			return err
		case a.Done:
			return nil
		case a.Error != "":
			return errors.New(a.Error)
		case ctx.Err() != nil:
			return fmt.Errorf("given up with %d changes left, %s: %s", a.Left, terminal.Size(a.Bytes), named(a))
		}
		begun = a.Begun
		tell(a)
	}
}

// left reports whether a call was left behind.
func left(err error) bool {
	_, ok := errors.AsType[*child.Abandoned](err)
	return ok
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
		case <-time.After(mountpoint.Patience):
			cancel()
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}

// named returns the paths of what is left, for people.
func named(a wire.FlushAnswer) string {
	names := make([]string, 0, len(a.Paths)+1)
	for _, e := range a.Paths {
		names = append(names, fmt.Sprintf("%s (%s)", e.Path, e.State))
	}
	if more := a.Left - len(a.Paths); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
