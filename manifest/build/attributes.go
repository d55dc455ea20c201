package build

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// describe asks for what the source does not say of the records: the targets of
// symlinks and, where attributes are wanted, the metadata of everything else.
// Objects that are gone by then are left out.
func (b *Build) describe(ctx context.Context, records []manifest.Record) ([]manifest.Record, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.cfg.Parallel)
	gone := make([]bool, len(records))
	asked := false
	for i := range records {
		if !records[i].Symlink && !b.cfg.Attrs {
			continue
		}
		asked = true
		group.Go(func() (err error) {
			gone[i], err = b.ask(ctx, &records[i])
			return err
		})
	}
	if err := group.Wait(); err != nil || !asked {
		return records, err
	}
	kept := records[:0]
	for i := range records {
		if !gone[i] {
			kept = append(kept, records[i])
		}
	}
	b.missing.Add(int64(len(records) - len(kept)))
	return kept, nil
}

// ask completes one record. gone says that the object does not exist any more.
func (b *Build) ask(ctx context.Context, r *manifest.Record) (gone bool, err error) {
	if r.Symlink {
		// A HEAD would follow the link.
		target, err := b.cfg.Bucket.SymlinkTarget(ctx, r.Key)
		if err != nil {
			return errors.Is(err, oss.ErrNotFound), unlessNotFound(err)
		}
		r.Attr = &manifest.Attr{Known: manifest.AttrTarget, Target: target}
		return false, nil
	}
	info, err := b.cfg.Bucket.Head(ctx, r.Key)
	if err != nil {
		return errors.Is(err, oss.ErrNotFound), unlessNotFound(err)
	}
	if info.Symlink {
		// It was replaced by a link since it was listed: the link is what is there.
		return b.askAgain(ctx, r)
	}
	*r = fromHead(&info, b.cfg.Attrs)
	return false, nil
}

// askAgain lists the one key of r and completes what it is now.
func (b *Build) askAgain(ctx context.Context, r *manifest.Record) (gone bool, err error) {
	page, err := b.cfg.Bucket.List(ctx, oss.ListRequest{Prefix: r.Key, MaxKeys: 1})
	if err != nil {
		return false, err
	}
	if len(page.Objects) == 0 || page.Objects[0].Key != r.Key {
		return true, nil
	}
	*r = manifest.RecordOf(&page.Objects[0])
	if !r.Symlink {
		return false, nil // and replaced again: this version has told no attributes
	}
	return b.ask(ctx, r)
}

func unlessNotFound(err error) error {
	if errors.Is(err, oss.ErrNotFound) {
		return nil
	}
	return err
}

// fromHead returns what a HEAD says of an object that is no symlink.
func fromHead(info *oss.Info, attrs bool) manifest.Record {
	r := manifest.Record{
		Key: info.Key, Size: info.Size, ETag: info.ETag, ModTime: info.ModTime,
		CRC64: info.CRC64, HasCRC64: info.HasCRC64,
	}
	if attrs {
		r.Attr = attrOf(info.Meta)
	}
	return r
}

// attrOf reads the metadata that ossfs 1 and pailfs keep of files: decimal numbers,
// the mode with the bits of the type, the time in seconds with or without a
// fraction. What cannot be read is not known. It is nil if there is nothing.
func attrOf(meta map[string]string) *manifest.Attr {
	if len(meta) == 0 {
		return nil
	}
	a := &manifest.Attr{}
	for name, value := range meta {
		switch name {
		case "mode":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.Mode, a.Known = uint32(n)&0o7777, a.Known|manifest.AttrMode
			}
		case "uid":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.UID, a.Known = uint32(n), a.Known|manifest.AttrUID
			}
		case "gid":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.GID, a.Known = uint32(n), a.Known|manifest.AttrGID
			}
		case "mtime":
			if t, ok := parseSeconds(value); ok {
				a.MTime, a.Known = t, a.Known|manifest.AttrMTime
			}
		default:
			a.User = append(a.User, manifest.UserAttr{Name: name, Value: value})
		}
	}
	slices.SortFunc(a.User, func(x, y manifest.UserAttr) int { return strings.Compare(x.Name, y.Name) })
	return a
}

// parseSeconds reads seconds since 1970 with up to nine digits of a fraction.
func parseSeconds(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(fraction) > 9 {
		return time.Time{}, false
	}
	nanos := uint64(0)
	if fraction != "" {
		if nanos, err = strconv.ParseUint((fraction + "000000000")[:9], 10, 32); err != nil {
			return time.Time{}, false
		}
	}
	return time.Unix(seconds, int64(nanos)).UTC(), true
}
