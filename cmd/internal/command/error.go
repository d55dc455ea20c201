package command

import (
	"context"
	"errors"
	"strings"
)

// The exit codes that mean the same in every program. Scripts may rely on them.
const (
	OK      = 0
	Failed  = 1 // what was asked for was tried and failed
	Refused = 2 // arguments or configuration were refused; nothing was tried
)

// Error is an error with the exit code that it means.
type Error struct {
	Code int
	// Err is nil where the exit code says all: then nothing is printed.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns what is printed.
func (e *Error) Unwrap() error { return e.Err }

// Usage marks err as one of arguments or configuration.
func Usage(err error) error { return &Error{Code: Refused, Err: err} }

// Code returns the exit code that err means.
func Code(err error) int {
	if err == nil {
		return OK
	}
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return Failed
}

// OneLine returns the text of err without line breaks, whatever a library put into it.
func OneLine(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var lines []string
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, " ")
}
