// Package access decides what the users of a mount may do with its files as the kernel
// would: by the modes and owners that the mount shows.
//
// The kernel asks for them whoever goes through the mount. Who names a path in the
// control channel makes the daemon go, which may do everything; so the daemon asks here.
// [Rights] walks from directory to directory as the kernel does (walk.go): it needs the
// right to search each of them before it looks a name up in it, and stops at what it may
// not pass before it knows whether there is anything behind.
//
// Two things differ. It does not know the capabilities of a process: user 0 may do
// everything, and nobody else more than the modes say. And a symbolic link that leads out
// of the directory of which the caller has a descriptor may not be followed: a container that
// sees a part of the mount is told of nothing beside it, not even of what others have found there.
package access

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"time"

	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Names is what a mount shows by path, whoever asks.
type Names interface {
	Root() pailfs.Shown
	Lookup(ctx context.Context, dir, name string) (pailfs.Shown, error)
	ReadDir(ctx context.Context, dir, after string, limit int) ([]pailfs.Shown, error)
	ReadLink(ctx context.Context, s pailfs.Shown) (string, error)
	Moment() uint64
	Renamed(dir string, since uint64) bool
}

var _ Names = pailfs.Names{}

const (
	// pageSize is how many names of a directory are asked for at once.
	pageSize = 1024
	// attempts is how often something is tried while the directories on its way are
	// renamed, and renameWait how long is waited before the next time.
	attempts   = 100
	renameWait = time.Millisecond
)

// Rights are those of the users of one mount. It is safe for concurrent use.
type Rights struct {
	names func(ctx context.Context) (Names, error)
	alike bool
}

var _ rights.Rights = (*Rights)(nil)

// New returns the rights to what names returns, which may wait until there is a mount.
// alike says that everything has the root's owner and the modes that one umask leaves:
// whoever may read and search the root may read all, and nothing has to be looked up to
// know that.
func New(names func(ctx context.Context) (Names, error), alike bool) *Rights {
	return &Rights{names: names, alike: alike}
}

// Open implements [rights.Rights].
func (r *Rights) Open(ctx context.Context, who session.Who, name string) (found rights.Found, err error) {
	err = r.do(ctx, who, func(w *walker) error {
		at, err := w.find(ctx, name)
		if err != nil {
			return err
		}
		if err := w.may(&at, read); err != nil {
			return err
		}
		if !published(at.Kind) {
			return fmt.Errorf("%q is neither a file nor a directory: %w", name, iofs.ErrInvalid)
		}
		found = foundAt(at.path, &at.Shown)
		return nil
	})
	if err != nil {
		return rights.Found{}, err
	}
	return found, nil
}

// ReadDir implements [rights.Rights].
func (r *Rights) ReadDir(ctx context.Context, who session.Who, name, after string) (page []rights.Found, err error) {
	err = r.do(ctx, who, func(w *walker) error {
		at, err := w.find(ctx, name)
		if err != nil {
			return err
		}
		if err := w.may(&at, read); err != nil {
			return err
		}
		page, err = w.list(ctx, &at, after)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// Refused implements [rights.Rights].
func (r *Rights) Refused(ctx context.Context, who session.Who, name string) error {
	err := r.do(ctx, who, func(w *walker) error {
		if w.free {
			return nil
		}
		at, err := w.find(ctx, name)
		if err != nil {
			return err
		}
		return w.may(&at, read)
	})
	switch {
	case errors.Is(err, errLeaves): // what was there before is not seen any more
		return fmt.Errorf("user %d may not read %q: %w", who.UID, name, iofs.ErrPermission)
	case errors.Is(err, iofs.ErrNotExist):
		return nil
	}
	return err
}

// Keep implements [rights.Rights]. A path with a link in it is refused: what is kept is
// not written through the mount, and would not follow it.
func (r *Rights) Keep(ctx context.Context, who session.Who, name string) error {
	return r.do(ctx, who, func(w *walker) error {
		dir, base := path.Split(name)
		trail, missing, err := w.walk(ctx, path.Clean("/" + dir)[1:])
		if err != nil && missing == nil {
			return err
		}
		at := &trail[len(trail)-1]
		if at.Kind != manifest.Directory || path.Join(append([]string{at.path}, missing...)...) != path.Clean("/" + dir)[1:] {
			return fmt.Errorf("%q is no directory of its own: %w", dir, iofs.ErrPermission)
		}
		if err := w.may(at, write|search); err != nil || missing != nil {
			return err
		}
		there, err := w.lookup(ctx, at.path, base)
		switch {
		case errors.Is(err, iofs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case there.Kind != manifest.File:
			return fmt.Errorf("%q is no file: %w", name, iofs.ErrPermission)
		case at.Mode&sticky != 0 && !w.who.IsRoot() && w.who.UID != there.UID && w.who.UID != at.UID:
			return fmt.Errorf("%q is somebody else's: %w", name, iofs.ErrPermission)
		}
		return w.may(&node{path: name, Shown: there}, read|write)
	})
}

// do calls f with a walker for who. It calls f again if a directory in which f looked, or
// one above, was renamed meanwhile, for then the mode of one may have been taken for that of
// another. Who renames others cannot keep it from ending, and it keeps nobody from renaming.
func (r *Rights) do(ctx context.Context, who session.Who, f func(w *walker) error) error {
	names, err := r.names(ctx)
	if err != nil {
		return err
	}
	root := node{Shown: names.Root()}
	w := &walker{names: names, who: who, root: root}
	w.free = who.IsRoot() || r.alike && w.may(&root, read|search) == nil
	for range attempts {
		before := names.Moment()
		w.looked = w.looked[:0]
		err := f(w)
		renamed := func(dir string) bool { return names.Renamed(dir, before) }
		if w.free || ctx.Err() != nil || !slices.ContainsFunc(w.looked, renamed) {
			return err
		}
		select {
		case <-time.After(renameWait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("a directory on the way is being renamed all the time: try again")
}

// published reports whether the bucket can have names of a kind: fifos and sockets are of
// one mount only.
func published(k manifest.Kind) bool {
	return k == manifest.File || k == manifest.Directory || k == manifest.Symlink
}

// foundAt returns what s is, which is at a path.
func foundAt(at string, s *pailfs.Shown) rights.Found {
	f := rights.Found{Path: at, Cursor: s.Cursor, Directory: s.Kind == manifest.Directory}
	if !f.Directory {
		f.Object, f.Staged = s.Object, s.Staged
	}
	return f
}
