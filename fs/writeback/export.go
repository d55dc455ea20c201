package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// ErrNothing means that nothing is staged at a path or below it.
var ErrNothing = errors.New("nothing is staged")

const (
	// exportChunk is how much is copied between two looks at the context, in bytes.
	exportChunk = 64 << 20
	// exporting ends the names of files that are not whole yet.
	exporting = ".pailfs-export"
)

// Exported is one file whose bytes were copied out, or were not.
type Exported struct {
	Staged
	// To is the file's path below the destination. That of a suspect or unfinished file
	// ends with ".suspect-" or ".unfinished-" and the id of its bytes. That of a partial one
	// ends with ".partial": it has what was written in its place, and holes for the rest, and
	// a file with ".extents" after that name lists offset and length of what was written.
	To string `json:"to"`
	// Err is why there is no such file.
	Err error `json:"-"`
}

// Export copies the bytes that are staged for path, or below it, into the directory
// dst, which is made if it is not there. "" is everything. No file that exists is
// overwritten. The staging directory stays as it is.
//
// A file that cannot be copied has its error in its [Exported]. Errors: those of
// [Inspect], [ErrNothing], that of ctx, and those of the destination.
func Export(ctx context.Context, dir, path, dst string) ([]Exported, error) {
	l, err := openLeft(dir, syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer l.close()
	files := l.exports(path)
	if len(files) == 0 {
		if path == "" {
			return nil, nil
		}
		return nil, fmt.Errorf("%w at %q", ErrNothing, path)
	}
	if err := os.Mkdir(dst, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for i := range files {
		files[i].Err = l.export(ctx, root, &files[i])
		if ctx.Err() != nil {
			return files[:i], ctx.Err()
		}
	}
	return files, nil
}

// exports returns what has bytes to copy, and the newest file of each name.
func (l *left) exports(path string) []Exported {
	var files []Exported
	seen := make(map[order.FileID]bool)
	for _, list := range [][]Staged{l.report.Suspects, l.report.Unfinished, l.report.Pending} {
		for _, s := range list {
			if s.File == "" || seen[s.id] || s.Replaced || !covers(path, s.Path) {
				continue
			}
			seen[s.id] = true
			to := s.Path
			switch {
			case s.Suspect:
				to += ".suspect-" + s.File
			case s.Unfinished:
				to += ".unfinished-" + s.File
			}
			if s.Partial {
				to += partialEnding
			}
			files = append(files, Exported{Staged: s, To: to})
		}
	}
	return files
}

// export copies one file.
func (l *left) export(ctx context.Context, root *os.Root, e *Exported) error {
	if _, err := root.Lstat(e.To); err == nil {
		return fmt.Errorf("%w: it is left as it is", os.ErrExist)
	}
	parentDir := path.Dir(e.To)
	if err := root.MkdirAll(parentDir, 0o777); err != nil {
		return err
	}
	temp := e.To + exporting
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	mtime, err := l.copyOut(ctx, out, e)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = root.Chtimes(temp, time.Time{}, mtime)
	}
	if err == nil && e.Partial {
		err = l.exportExtents(root, e)
	}
	if err == nil {
		err = moveTo(root, parentDir, path.Base(e.To))
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return nil
}

// copyOut writes the bytes of a file and returns when they were written last.
func (l *left) copyOut(ctx context.Context, out *os.File, e *Exported) (mtime time.Time, err error) {
	if l.restored[e.id] {
		f := l.state.Files[e.id]
		content, err := readSpan(l.file, f, l.inline[e.id])
		if err == nil {
			_, err = out.Write(content)
		}
		e.Bytes = int64(len(content))
		return time.Unix(0, f.Stamp), err
	}
	if l.overlaid[e.id] {
		defer func() {
			content, failed := readSpan(l.file, l.state.Files[e.id], l.inline[e.id])
			if failed == nil {
				_, failed = out.WriteAt(content, 0)
			}
			e.Bytes = max(e.Bytes, int64(len(content)))
			err = errors.Join(err, failed)
		}()
	}
	in, err := os.Open(stagedPath(l.dir, e.id))
	if errors.Is(err, os.ErrNotExist) {
		if l.overlaid[e.id] {
			return time.Unix(0, l.state.Files[e.id].Stamp), nil
		}
		return mtime, errors.New("nothing of its bytes is left")
	}
	if err != nil {
		return mtime, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return mtime, err
	}
	if e.Partial {
		e.Bytes, err = copyPartial(ctx, e.partial, out, in)
		return info.ModTime(), err
	}
	e.Bytes = 0
	for {
		n, err := io.CopyN(out, in, exportChunk)
		e.Bytes += n
		switch {
		case errors.Is(err, io.EOF):
			return info.ModTime(), nil
		case err != nil:
			return mtime, err
		case ctx.Err() != nil:
			return mtime, ctx.Err()
		}
	}
}

// moveTo gives a file that is whole its name, unless something has it.
func moveTo(root *os.Root, dir, base string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	fd := int(d.Fd())
	err = unix.Renameat2(fd, base+exporting, fd, base, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that cannot promise it.
		if _, err := root.Lstat(path.Join(dir, base)); err == nil {
			return os.ErrExist
		}
		err = unix.Renameat(fd, base+exporting, fd, base)
	}
	if err != nil {
		return &os.PathError{Op: "rename", Path: base, Err: err}
	}
	return d.Sync()
}
