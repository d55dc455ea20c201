package rights

import (
	"context"
	"errors"
	iofs "io/fs"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Rights is the only way from a path to an object. It finds what the mount shows at a
// path, links followed, as far as the kernel would let somebody: whoever may not search
// a directory does not learn what is in it. What is refused is [io/fs.ErrPermission].
//
// Nothing is remembered: rights are those of the moment of the call.
type Rights interface {
	// Open returns the file or directory at path, which who may read.
	Open(ctx context.Context, who session.Who, path string) (Found, error)
	// ReadDir returns what is in the directory at path, after the entry with the cursor
	// after. What who may not read has an Err. It returns nothing at the end.
	ReadDir(ctx context.Context, who session.Who, path, after string) ([]Found, error)
	// Refused returns an error if who may not read what is at path, or if that cannot be
	// told at present, as long as the store does not answer. What is not there is not
	// refused.
	Refused(ctx context.Context, who session.Who, path string) error
	// Keep returns an error unless who may make, replace, read and remove a file at path.
	Keep(ctx context.Context, who session.Who, path string) error
}

// Found is a file or a directory.
type Found struct {
	// Path is where it is, without links in it, and Cursor continues a listing after it.
	Path, Cursor string
	Directory    bool
	// Object is what a file means. Staged says that its bytes are on this node and no
	// object yet, which has their size only.
	Object oss.Object
	Staged bool
	// Err is why it may not be read; nothing else is told then.
	Err error
}

// Unreadable reports whether something may not be read: by what the mount shows of modes and
// owners, or because the bucket lets the mount itself not read it.
func Unreadable(err error) bool {
	return errors.Is(err, iofs.ErrPermission) || errors.Is(err, oss.ErrAccessDenied)
}

// Denied reports whether an error of [Rights] says what who may do. Any other says that it
// cannot be told at present, and is no reason to take back what has been told before.
func Denied(err error) bool {
	for _, final := range []error{iofs.ErrPermission, iofs.ErrNotExist, iofs.ErrInvalid, syscall.ELOOP} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// refusePatience bounds how long an answer waits to be told who may have it.
const refusePatience = 5 * time.Second

// Asking returns a context in which rights are asked for an answer whose own time may be
// over.
func Asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), refusePatience)
}
