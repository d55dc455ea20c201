package build

import (
	"context"
	"errors"

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
		r.Attr = manifest.AttrOf(info.Meta)
	}
	return r
}
