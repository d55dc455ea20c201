package session

import (
	"errors"
	iofs "io/fs"
	"strings"

	"github.com/pailfs/pailfs/oss"
)

// maxFailure bounds what is kept of the text of an error, in bytes. It may name a path of
// any length, in each of the errors that it wraps.
const maxFailure = 200

// causes are what others ask of an error why something was not fetched.
var causes = []error{iofs.ErrNotExist, iofs.ErrPermission, oss.ErrNotFound, oss.ErrAccessDenied, oss.ErrChanged}

// failure is an error of which the cause and the beginning of the text were kept.
type failure struct {
	text  string
	cause error
}

// Brief returns what is kept of an error for as long as its entry is held.
func Brief(err error) error {
	f := &failure{text: err.Error()}
	if len(f.text) > maxFailure {
		f.text = strings.ToValidUTF8(f.text[:maxFailure], "") + "…"
	}
	f.text = strings.Clone(f.text)
	for _, c := range causes {
		if errors.Is(err, c) {
			f.cause = c
			break
		}
	}
	return f
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

// Unwrap returns the cause, if it is one that is asked for.
func (f *failure) Unwrap() error { return f.cause }
