package errnos

import (
	"context"
	"errors"
	iofs "io/fs"
	"syscall"

	"github.com/pailfs/pailfs/oss"
)

// Table says what an error becomes for the program that caused it: in the
// column name when a name was asked for, in the column version when the bytes of
// a version that the program holds were. The first row that matches counts. What
// matches none is EIO.
//
// ESTALE for a version that is gone makes open(2) look the name up again, inside
// the kernel. ETIMEDOUT rather than EIO tells a store out of reach from content
// that is damaged: the former may pass.
var Table = []struct {
	Err           error
	name, version syscall.Errno
}{
	{context.Canceled, syscall.EINTR, syscall.EINTR},
	{oss.ErrChanged, syscall.ESTALE, syscall.ESTALE},
	{oss.ErrNotFound, syscall.ENOENT, syscall.ESTALE},
	{iofs.ErrNotExist, syscall.ENOENT, syscall.ESTALE},
	{iofs.ErrPermission, syscall.EACCES, syscall.EACCES}, // a link that leads out of what is mounted
	{oss.ErrAccessDenied, syscall.EACCES, syscall.EACCES},
	{oss.ErrCorrupted, syscall.EIO, syscall.EIO},
	{oss.ErrBadAnswer, syscall.EIO, syscall.EIO}, // an ErrUnavailable, too, but one that hardly passes
	{oss.ErrUnavailable, syscall.ETIMEDOUT, syscall.ETIMEDOUT},
	{context.DeadlineExceeded, syscall.ETIMEDOUT, syscall.ETIMEDOUT},
	{oss.ErrNoBucket, syscall.EIO, syscall.EIO},
	{oss.ErrInvalid, syscall.EIO, syscall.EIO},
}

// OfName returns the errno for an error met while looking for a name.
func OfName(err error) syscall.Errno {
	for _, row := range Table {
		if Matches(err, row.Err) {
			return row.name
		}
	}
	return syscall.EIO
}

// OfVersion returns the errno for an error met while reading a version.
func OfVersion(err error) syscall.Errno {
	for _, row := range Table {
		if Matches(err, row.Err) {
			return row.version
		}
	}
	return syscall.EIO
}

// OfChange returns the errno for an error met while changing something. What the
// space refuses says itself what it is to the program.
func OfChange(err error) syscall.Errno {
	for _, row := range Table {
		if Matches(err, row.Err) {
			return row.name
		}
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if errors.Is(err, iofs.ErrExist) {
		return syscall.EEXIST
	}
	return syscall.EIO
}

// Refused reports whether errno says that what a program asked for cannot be, which
// is its own affair.
func Refused(errno syscall.Errno) bool {
	switch errno {
	case syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EACCES, syscall.ETIMEDOUT, syscall.EROFS:
		return false
	}
	return true
}

// Matches is [errors.Is], except that an ENOENT of the cache's own disk does not
// say that a name of the mount does not exist, nor its EACCES that one is refused.
func Matches(err, kind error) bool {
	if !errors.Is(err, kind) {
		return false
	}
	_, ofSystem := errors.AsType[syscall.Errno](err)
	return !ofSystem || !errors.Is(kind, iofs.ErrNotExist) && !errors.Is(kind, iofs.ErrPermission)
}

// Ours reports whether errno says that something is wrong with us or the store,
// which belongs in the log, rather than with the name or the caller.
func Ours(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINTR, syscall.ENOENT, syscall.ESTALE:
		return false
	}
	return true
}
