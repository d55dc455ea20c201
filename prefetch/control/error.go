package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// Code classifies the failure of a call. It is part of the protocol.
type Code string

// The codes that the mux itself answers. Methods use [CodeFailed] and those
// below it, and may define further ones.
const (
	// CodeVersion means that client and daemon speak different versions.
	CodeVersion Code = "version"
	// CodeBadRequest means that the request could not be understood.
	CodeBadRequest Code = "bad-request"
	// CodeUnknownMethod means that the daemon has no such method.
	CodeUnknownMethod Code = "unknown-method"
	// CodeRefused means that the caller's user may not call this method.
	CodeRefused Code = "refused"
	// CodeStaleCursor means that a cursor names no call of the caller's user: it
	// was fetched to its end, was dropped, or was not asked after for too long.
	CodeStaleCursor Code = "stale-cursor"
	// CodeOverQuota means that the user may not make the daemon keep more of something:
	// the message says of what, and what can be done.
	CodeOverQuota Code = "over-quota"
	// CodeTooLarge means that the answer is longer than the daemon keeps. What the
	// method does was done.
	CodeTooLarge Code = "too-large"
	// CodeStopping means that the daemon is about to exit. Nothing was done.
	CodeStopping Code = "stopping"
	// CodeInternal means that the method failed by a mistake in the daemon, which
	// has logged it.
	CodeInternal Code = "internal"

	// CodeFailed means that the method failed for the reason in the message.
	CodeFailed Code = "failed"
	// CodeCanceled means that the call was cancelled before it was done.
	CodeCanceled Code = "canceled"
)

// Error is a failure as the daemon told it. A method returns one to choose its
// code; any other error is sent with [CodeFailed].
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an Error with the same code and no message, or
// an equal one.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Message == "" || t.Message == e.Message)
}

// Errorf returns an [Error] with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errorOf returns what the caller is told of err.
func errorOf(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*budget.Exceeded)(nil); errors.As(err, &e) {
		return Errorf(CodeOverQuota, "%v", err)
	}
	if errors.Is(err, context.Canceled) {
		return Errorf(CodeCanceled, "%v", err)
	}
	return Errorf(CodeFailed, "%v", err)
}
