package access

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"
	"syscall"

	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Bits of a mode: what may be wanted of a file, and that only its owner may remove a name.
const (
	read   = 4
	write  = 2
	search = 1
	sticky = 0o1000
)

// maxLinks is how many symbolic links are followed, as in the kernel.
const maxLinks = 40

// errLeaves is the error of a link that leaves the mount. Nothing of the mount is there.
var errLeaves = fmt.Errorf("it is a link that leaves the mount: %w", iofs.ErrNotExist)

// node is something that was found at a path without links.
type node struct {
	pailfs.Shown
	path string
}

// walker walks for somebody.
type walker struct {
	names Names
	who   session.Who
	root  node
	// free says that who may read everything.
	free bool
	// looked are the directories in which it has looked.
	looked []string
}

// lookup asks for a name in a directory.
func (w *walker) lookup(ctx context.Context, dir, name string) (pailfs.Shown, error) {
	w.looks(dir)
	return w.names.Lookup(ctx, dir, name)
}

// looks notes that something is asked of the directory at a path. The root is never renamed.
func (w *walker) looks(dir string) {
	if n := len(w.looked); dir != "" && (n == 0 || w.looked[n-1] != dir) {
		w.looked = append(w.looked, dir)
	}
}

// may returns an error unless who may do with n what is wanted.
func (w *walker) may(n *node, wanted uint32) error {
	if w.who.Bits(n.Mode, n.UID, n.GID)&wanted == wanted {
		return nil
	}
	doing := [...]string{read: "read", search: "search"}
	verb := "change"
	if int(wanted) < len(doing) && doing[wanted] != "" {
		verb = doing[wanted]
	}
	return fmt.Errorf("user %d may not %s %q: %w", w.who.UID, verb, n.path, iofs.ErrPermission)
}

// find returns what is at the path name, links followed.
func (w *walker) find(ctx context.Context, name string) (node, error) {
	if w.free && name != "" {
		// There is nothing to be asked of the directories.
		dir, base := path.Split(name)
		s, err := w.lookup(ctx, strings.TrimSuffix(dir, "/"), base)
		switch {
		case err == nil && s.Kind != manifest.Symlink:
			return node{s, name}, nil
		case err != nil && !errors.Is(err, iofs.ErrNotExist):
			return node{}, err
		}
	}
	trail, _, err := w.walk(ctx, name)
	if err != nil {
		return node{}, err
	}
	return trail[len(trail)-1], nil
}

// walk goes along the path name and returns the directories on the way with what is at
// its end. If something is missing, that is an error, and missing the names that lead on
// from the end of the trail.
func (w *walker) walk(ctx context.Context, name string) (trail []node, missing []string, err error) {
	start, rest, err := w.start(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	trail = []node{start}
	parts := split(rest)
	for links := 0; len(parts) > 0; {
		here := &trail[len(trail)-1]
		if here.Kind != manifest.Directory {
			return nil, nil, fmt.Errorf("%q is no directory: %w", here.path, iofs.ErrNotExist)
		}
		if err := w.may(here, search); err != nil {
			return nil, nil, err
		}
		part := parts[0]
		parts = parts[1:]
		switch part {
		case ".":
			continue
		case "..":
			if len(trail) == 1 {
				return nil, nil, fmt.Errorf("%q is a link that leads out of %q: %w", name, start.path, iofs.ErrPermission)
			}
			trail = trail[:len(trail)-1]
			continue
		}
		s, err := w.lookup(ctx, here.path, part)
		switch {
		case errors.Is(err, iofs.ErrNotExist):
			return trail, append([]string{part}, parts...), err
		case err != nil:
			return nil, nil, err
		case s.Kind != manifest.Symlink:
			trail = append(trail, node{s, join(here.path, part)})
			continue
		}
		target, err := w.names.ReadLink(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		if links++; links > maxLinks {
			return nil, nil, fmt.Errorf("%q: %w", name, syscall.ELOOP)
		}
		if path.IsAbs(target) {
			return nil, nil, fmt.Errorf("%q: %w", join(here.path, part), errLeaves)
		}
		parts = append(split(target), parts...)
	}
	return trail, nil, nil
}

// start returns the directory from which a path is walked, and the rest of the path: the
// one of which the caller has a descriptor, where that is above. If that was renamed, removed
// or left, what has its path by now is walked to as anybody walks: from the root.
func (w *walker) start(ctx context.Context, name string) (start node, rest string, err error) {
	base := w.who.Base.Path
	rest, ok := strings.CutPrefix(name+"/", base+"/")
	if base == "" || !ok {
		return w.root, name, nil
	}
	rest = strings.TrimSuffix(rest, "/")
	dir, last := path.Split(base)
	s, err := w.lookup(ctx, strings.TrimSuffix(dir, "/"), last)
	switch {
	case err != nil && !errors.Is(err, iofs.ErrNotExist):
		return node{}, "", err
	case err == nil && s.Kind == manifest.Directory && s.ID != 0 && s.ID == w.who.Base.ID:
		return node{s, base}, rest, nil
	}
	start, err = w.straight(ctx, base)
	return start, rest, err
}

// straight walks from the root to the directory at the path name, along which there are no
// links.
func (w *walker) straight(ctx context.Context, name string) (node, error) {
	here := w.root
	for _, part := range split(name) {
		if err := w.may(&here, search); err != nil {
			return node{}, err
		}
		s, err := w.lookup(ctx, here.path, part)
		if err != nil {
			return node{}, err
		}
		here = node{s, join(here.path, part)}
		if s.Kind != manifest.Directory {
			return node{}, fmt.Errorf("%q is no directory any more: %w", here.path, iofs.ErrNotExist)
		}
	}
	return here, nil
}

// list returns what is in a directory that who may read, after a cursor.
func (w *walker) list(ctx context.Context, dir *node, after string) (page []rights.Found, err error) {
	closed := w.may(dir, search) // then there are names, and nothing more
	for len(page) == 0 {
		w.looks(dir.path)
		entries, err := w.names.ReadDir(ctx, dir.path, after, pageSize)
		if err != nil || len(entries) == 0 {
			return nil, err
		}
		after = entries[len(entries)-1].Cursor
		for i := range entries {
			s := &entries[i]
			at := join(dir.path, s.Name)
			if s.Partial && !w.free && closed == nil {
				cursor := s.Cursor
				*s, err = w.lookup(ctx, dir.path, s.Name)
				if errors.Is(err, iofs.ErrNotExist) {
					continue // it has just gone
				}
				if rights.Errno(err) == "EACCES" {
					page = append(page, rights.Found{Path: at, Cursor: cursor, Err: err})
					continue // the bucket denies this one
				}
				if err != nil {
					return nil, err
				}
				s.Cursor = cursor
			}
			if s.Kind == manifest.Symlink || !published(s.Kind) {
				continue
			}
			found := foundAt(at, s)
			if closed != nil {
				found = rights.Found{Path: at, Cursor: s.Cursor, Err: closed}
			} else if err := w.may(&node{*s, at}, read); err != nil {
				found = rights.Found{Path: at, Cursor: s.Cursor, Err: err}
			}
			page = append(page, found)
		}
	}
	return page, nil
}

// split returns the components of a path.
func split(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// join appends name to the path of a directory.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
