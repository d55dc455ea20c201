package prefetch

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

const (
	// pageSize is how many names of a directory are asked for at once.
	pageSize = 4096
	// maxLinks is how many symbolic links are followed.
	maxLinks = 8
	// maxDepth is how deep directories are walked: deeper than any key can be.
	maxDepth = 1024
)

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

// objectsOf returns the files that a path means: itself, or all below it.
func (p *Prefetcher) objectsOf(ctx context.Context, name string) ([]oss.Object, error) {
	var objects []oss.Object
	err := p.walk(ctx, name, func(_ string, o oss.Object) error {
		objects = append(objects, o)
		return nil
	})
	return objects, err
}

// walk calls f with every file that a path means. Links below a directory are not
// followed, so that nothing comes twice.
func (p *Prefetcher) walk(ctx context.Context, name string, f func(file string, o oss.Object) error) error {
	for range maxLinks {
		if name == "" {
			return p.walkDir(ctx, "", f, 0)
		}
		dir, base := path.Split(name)
		e, _, err := p.tree.Lookup(ctx, strings.TrimSuffix(dir, "/"), base)
		if err != nil {
			return err
		}
		switch e.Kind {
		case manifest.File:
			return f(name, e.Object)
		case manifest.Directory:
			return p.walkDir(ctx, name, f, 0)
		case manifest.Symlink:
			target, err := p.tree.ReadLink(ctx, e)
			if err != nil {
				return err
			}
			if name = path.Join(dir, target); path.IsAbs(target) || name == ".." || strings.HasPrefix(name, "../") {
				return fmt.Errorf("%q is a link that leaves the mount: %w", base, iofs.ErrNotExist)
			}
			if name == "." {
				name = ""
			}
		}
	}
	return fmt.Errorf("%q: more than %d links: %w", name, maxLinks, iofs.ErrInvalid)
}

func (p *Prefetcher) walkDir(ctx context.Context, dir string, f func(string, oss.Object) error, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%q is too deep: %w", dir, iofs.ErrInvalid)
	}
	after := ""
	for {
		entries, _, err := p.tree.ReadDir(ctx, dir, after, pageSize)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return nil
		}
		for _, e := range entries {
			switch e.Kind {
			case manifest.File:
				err = f(join(dir, e.Name), e.Object)
			case manifest.Directory:
				err = p.walkDir(ctx, join(dir, e.Name), f, depth+1)
			default:
			}
			if err != nil {
				return err
			}
		}
		after = entries[len(entries)-1].Cursor
	}
}

// join appends name to the path of a directory.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Errno names the errno that a reader of a file meets that could not be fetched
// because of err.
func Errno(err error) string {
	switch {
	case errors.Is(err, iofs.ErrNotExist), errors.Is(err, oss.ErrNotFound):
		return "ENOENT"
	case errors.Is(err, oss.ErrAccessDenied):
		return "EACCES"
	case errors.Is(err, oss.ErrChanged):
		return "ESTALE"
	default:
		return "EIO"
	}
}
