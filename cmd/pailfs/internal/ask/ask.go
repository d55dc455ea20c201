package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/prefetch/control"
)

// Hello asks the daemon of the mount at path who it is.
func Hello(ctx context.Context, path string) error { return Call(ctx, path, "", nil, nil) }

// Call calls one method of the daemon of the mount at path; "" only says hello. A child makes the
// call: when ctx ends first Call returns, and what waits for a stuck daemon is left behind.
func Call(ctx context.Context, path, method string, params, result any) error {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return fmt.Errorf("encode parameters: %w", err)
		}
	}
	var a called
	err := child.Run(ctx, verbCall, path, calling{method, raw}, &a)
	if _, left := errors.AsType[*child.Abandoned](err); left {
		return fmt.Errorf("the daemon does not answer: %w", err)
	}
	if err == nil {
		err = a.err()
	}
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(a.Result, result)
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
