package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes, which scripts may rely on.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for was tried and failed
	exitUsage  = 2 // arguments or configuration were refused; nothing was tried
	exitDead   = 3 // the mount is there, its daemon is not

	exitDiffers = 4 // what was compared differs
)

// exitError is an error with the exit code that it means.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks err as one of arguments or configuration.
func usage(err error) error { return &exitError{code: exitUsage, err: err} }

// dead marks err as telling of a daemon that is gone.
func dead(err error) error { return &exitError{code: exitDead, err: err} }

// exitCode returns the exit code that err means.
func exitCode(err error) int {
	var coded *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	default:
		return exitFailed
	}
}

// report writes err as the one line that a user gets.
func report(w io.Writer, err error) {
	fmt.Fprintf(w, "pailfs: %s\n", oneLine(err))
}

// oneLine returns the text of err without line breaks, whatever a library put
// into it.
func oneLine(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted before the mount was ready"
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
