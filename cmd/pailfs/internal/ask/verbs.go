package ask

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/prefetch/control"
)

// verbCall calls a method of a daemon.
const verbCall = "call"

// Verbs are the calls that a child makes for the commands.
func Verbs() map[string]child.Verb {
	verbs := map[string]child.Verb{verbCall: call}
	maps.Copy(verbs, mountpoint.Verbs())
	return verbs
}

// calling is what a child is asked to call.
type calling struct {
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
}

// called is what came of it.
type called struct {
	Result json.RawMessage `json:"result,omitempty"`
	// Error is what the daemon said, Failure every other error.
	Error   *control.Error `json:"error,omitempty"`
	Failure string         `json:"failure,omitempty"`
	// Gone and NotPailfs say which error of control it was.
	Gone      bool `json:"gone,omitempty"`
	NotPailfs bool `json:"not_pailfs,omitempty"`
}

// call makes the call in a child.
func call(ctx context.Context, path string, request json.RawMessage) (any, error) {
	var c calling
	if err := json.Unmarshal(request, &c); err != nil {
		return nil, err
	}
	var a called
	err := a.make(ctx, path, c)
	if err != nil {
		a.Failure = err.Error()
		a.Error, _ = errors.AsType[*control.Error](err)
		a.Gone, a.NotPailfs = errors.Is(err, control.ErrDaemonGone), errors.Is(err, control.ErrNotPailfs)
	}
	return a, nil
}

func (a *called) make(ctx context.Context, path string, c calling) error {
	daemon, err := control.Dial(path)
	if err != nil {
		return err
	}
	if c.Method != "" {
		var params any
		if c.Params != nil {
			params = c.Params
		}
		err = daemon.Call(ctx, c.Method, params, &a.Result)
	}
	return errors.Join(err, daemon.Close())
}

// err returns the error as the child had it.
func (a *called) err() error {
	switch {
	case a.Failure == "":
		return nil
	case a.Error != nil:
		return told{a.Failure, a.Error}
	case a.Gone:
		return told{a.Failure, control.ErrDaemonGone}
	case a.NotPailfs:
		return told{a.Failure, control.ErrNotPailfs}
	}
	return errors.New(a.Failure)
}

// told is an error that a child met: what it said, and what it is.
type told struct {
	text string
	is   error
}

// Error implements error.
func (t told) Error() string { return t.text }

// Unwrap returns what it is.
func (t told) Unwrap() error { return t.is }
