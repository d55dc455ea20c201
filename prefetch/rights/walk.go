package rights

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/session"
)

// maxDepth is how deep directories are walked: deeper than any key can be.
const maxDepth = 1024

// CheckPath refuses what is not a path below the mount's root: "" is the root,
// else components joined by single slashes, none of them "." or "..".
func CheckPath(p string) error {
	if p == "" {
		return nil
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return fmt.Errorf("path %q: every component must be a name: no empty ones, no . and no .. in it", p)
		case strings.IndexByte(part, 0) >= 0:
			return fmt.Errorf("path %q holds a zero byte", p)
		}
	}
	return nil
}

// Walk calls f with every file that a path means, as far as who may read it, and with
// what is below it that who may not. Links below a directory are not followed, so that
// nothing comes twice.
func Walk(ctx context.Context, rights Rights, who session.Who, name string, f func(path string, found Found) error) error {
	at, err := rights.Open(ctx, who, name)
	switch {
	case err != nil:
		return err
	case at.Directory:
		return walkDir(ctx, rights, who, at.Path, f, 0)
	default:
		return f(name, at)
	}
}

func walkDir(ctx context.Context, rights Rights, who session.Who, dir string, f func(string, Found) error, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%q is too deep: %w", dir, iofs.ErrInvalid)
	}
	after := ""
	for {
		page, err := rights.ReadDir(ctx, who, dir, after)
		if err != nil {
			if depth > 0 && Unreadable(err) {
				return f(dir, Found{Path: dir, Err: err})
			}
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, found := range page {
			if found.Directory && found.Err == nil {
				err = walkDir(ctx, rights, who, found.Path, f, depth+1)
			} else {
				err = f(found.Path, found)
			}
			if err != nil {
				return err
			}
		}
		after = page[len(page)-1].Cursor
	}
}

// Errno names the errno that a reader of a file meets that could not be fetched
// because of err.
func Errno(err error) string {
	switch {
	case errors.Is(err, iofs.ErrNotExist), errors.Is(err, oss.ErrNotFound):
		return "ENOENT"
	case errors.Is(err, oss.ErrAccessDenied), errors.Is(err, iofs.ErrPermission):
		return "EACCES"
	case errors.Is(err, oss.ErrChanged):
		return "ESTALE"
	default:
		return "EIO"
	}
}
