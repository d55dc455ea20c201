package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// Endings of the names that a file gets of which only some bytes are staged: those, in
// their places, with holes for the rest; and the list of where they are.
const (
	partialEnding = ".partial"
	extentsEnding = ".extents"
)

// copyPartial writes the bytes that the staged file in has of its own to their places in
// out, and returns how many they are.
func copyPartial(ctx context.Context, p *state.Partial, out, in *os.File) (bytes int64, err error) {
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	if err := out.Truncate(info.Size()); err != nil {
		return 0, err
	}
	for _, e := range p.Own(info.Size()) {
		for off := e.Off; off < e.End(); {
			n := min(exportChunk, e.End()-off)
			if _, err := io.Copy(io.NewOffsetWriter(out, off), io.NewSectionReader(in, off, n)); err != nil {
				return bytes, err
			}
			off, bytes = off+n, bytes+n
			if ctx.Err() != nil {
				return bytes, ctx.Err()
			}
		}
	}
	return bytes, nil
}

// extentsText is the list beside a partial file: what the rest is to be taken from, and
// offset and length of what is there, in bytes.
func extentsText(p *state.Partial, path string, size int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %q, %d bytes: what was written is in the file beside this list.\n", path, size)
	fmt.Fprintf(&b, "# The rest of the first %d bytes is that of the object %q with ETag %q, %d bytes, of %s.\n",
		p.Limit, p.Base.Key, p.Base.ETag, p.Base.Size, p.Base.ModTime.UTC().Format(time.RFC3339))
	b.WriteString("# offset length\n")
	for _, e := range p.Own(size) {
		fmt.Fprintf(&b, "%d %d\n", e.Off, e.Size)
	}
	return b.String()
}

// exportExtents writes the list beside a partial file that was exported.
func (l *left) exportExtents(root *os.Root, e *Exported) error {
	_, size, err := stampOf(stagedPath(l.dir, e.id))
	if err != nil {
		return err
	}
	list, err := root.OpenFile(e.To+extentsEnding, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = list.WriteString(extentsText(e.partial, e.Path, size))
	return errors.Join(err, list.Sync(), list.Close())
}
