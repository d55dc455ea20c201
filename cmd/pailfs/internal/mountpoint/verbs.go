package mountpoint

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
)

// The calls that a child makes for this package.
const (
	verbStatfs  = "statfs"
	verbResolve = "resolve"
)

// Verbs are the calls that a child makes for this package.
func Verbs() map[string]child.Verb {
	return map[string]child.Verb{
		verbStatfs: func(_ context.Context, path string, _ json.RawMessage) (any, error) {
			state, err := statfs(path)
			return sight{State: state, Failure: failed(err)}, nil
		},
		verbResolve: func(_ context.Context, path string, _ json.RawMessage) (any, error) {
			full, err := resolve(path)
			return sight{Path: []byte(full), Failure: failed(err)}, nil
		},
	}
}

// sight is what a child saw.
type sight struct {
	State State `json:"state"`
	// Path is in bytes: it need not be text.
	Path    []byte   `json:"path,omitempty"`
	Failure *failure `json:"failure,omitempty"`
}

// failure is an error on its way from a child.
type failure struct {
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"`
}

func failed(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	_ = errors.As(err, &f.Errno) // 0 where there is none
	return f
}

// err returns the error as the child had it: what it says, and the number in it.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	return told{f}
}

// told is an error that a child met.
type told struct{ *failure }

// Error implements error.
func (t told) Error() string { return t.Text }

// Unwrap returns the number, nil if there was none.
func (t told) Unwrap() error {
	if t.Errno == 0 {
		return nil
	}
	return t.Errno
}

// ask lets a child make a call.
func ask(verb, path string, patience time.Duration, answer *sight) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return child.Run(ctx, verb, path, nil, answer)
}
