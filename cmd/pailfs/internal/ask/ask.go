package ask

import (
	"context"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/prefetch/control"
)

// Hello asks the daemon of the mount at path who it is.
func Hello(ctx context.Context, path string) error {
	return With(ctx, path, func(*control.Client) error { return nil })
}

// Call calls one method of the daemon of the mount at path.
func Call(ctx context.Context, path, method string, params, result any) error {
	return With(ctx, path, func(c *control.Client) error {
		return c.Call(ctx, method, params, result)
	})
}

// With runs f with a connection to the daemon of the mount at path. When
// ctx ends first it returns, and what waits for a stuck daemon is left behind.
func With(ctx context.Context, path string, f func(*control.Client) error) error {
	done := make(chan error, 1)
	go func() {
		c, err := control.Dial(path)
		if err != nil {
			done <- err
			return
		}
		err = f(c)
		done <- errors.Join(err, c.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the daemon does not answer: %w", ctx.Err())
	}
}

// ExitDead is the exit code of commands about a mount that is there, whose daemon is not.
const ExitDead = 3

// Dead marks err as telling of a daemon that is gone.
func Dead(err error) error { return &command.Error{Code: ExitDead, Err: err} }

// DeadMount says that the daemon of m is gone, and what to do.
func DeadMount(m mountpoint.Mount) error {
	return Dead(fmt.Errorf("%s: the daemon of %s is dead: clear the mount with pailfs umount %s, or mount again, which replaces it", m.Path, m.Source, m.Path))
}

// Error gives an error that tells of a dead daemon its exit code.
func Error(at string, err error) error {
	if errors.Is(err, control.ErrDaemonGone) {
		return Dead(fmt.Errorf("%s: %w", at, err))
	}
	return err
}
