package bare

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// PartSize is the size of the parts in which Load sends large objects.
const PartSize = 16 << 20

// Object is what Load stores under one key.
type Object struct {
	Key  string
	Size int64
	// Period, if set, says that the content repeats: only the first Period bytes,
	// a multiple of PartSize, are sent, the rest is copied inside the server.
	Period int64
	// Fill makes the bytes at an offset. It is called concurrently.
	Fill func(p []byte, offset int64) error
}

// Load stores objects, at most width requests at once. stored, if set, is told
// of every number of bytes that has arrived; it is called concurrently. Objects
// above PartSize are sent in parts, and an upload that fails is aborted.
func (c *Client) Load(ctx context.Context, objects []Object, width int, stored func(bytes int64)) error {
	if stored == nil {
		stored = func(int64) {}
	}
	g, putCtx := errgroup.WithContext(ctx)
	g.SetLimit(width)
	for i := range objects {
		o := &objects[i]
		if o.Size > PartSize {
			continue
		}
		if putCtx.Err() != nil {
			break
		}
		g.Go(func() error {
			p := make([]byte, o.Size)
			if err := o.Fill(p, 0); err != nil {
				return fmt.Errorf("make %q: %w", o.Key, err)
			}
			_, err := c.Put(putCtx, o.Key, p)
			stored(o.Size)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range objects {
		if o := &objects[i]; o.Size > PartSize {
			if err := c.loadParts(ctx, o, width, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) loadParts(ctx context.Context, o *Object, width int, stored func(int64)) error {
	u, err := c.CreateUpload(ctx, o.Key)
	if err != nil {
		return err
	}
	if err := c.sendParts(ctx, o, u, width, stored); err != nil {
		return errors.Join(err, c.AbortUpload(context.WithoutCancel(ctx), u))
	}
	return nil
}

func (c *Client) sendParts(ctx context.Context, o *Object, u Upload, width int, stored func(int64)) error {
	if o.Period > 0 && o.Period < o.Size {
		return c.copyPeriods(ctx, o, u, width, stored)
	}
	parts := int((o.Size + PartSize - 1) / PartSize)
	etags := make([]string, parts)
	g, putCtx := errgroup.WithContext(ctx)
	g.SetLimit(width)
	for i := range parts {
		g.Go(func() error {
			offset := int64(i) * PartSize
			p := make([]byte, min(PartSize, o.Size-offset))
			if err := o.Fill(p, offset); err != nil {
				return fmt.Errorf("make %q: %w", o.Key, err)
			}
			etag, err := c.PutPart(putCtx, u, i+1, p)
			etags[i] = etag
			stored(int64(len(p)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.CompleteUpload(ctx, u, etags)
}

// copyPeriods stores one period under a key of its own and makes every part of
// u a copy of it.
func (c *Client) copyPeriods(ctx context.Context, o *Object, u Upload, width int, stored func(int64)) error {
	period := Object{Key: o.Key + ".period", Size: o.Period, Fill: o.Fill}
	if err := c.Load(ctx, []Object{period}, width, nil); err != nil {
		return err
	}
	var etags []string
	for offset := int64(0); offset < o.Size; offset += o.Period {
		n := min(o.Period, o.Size-offset)
		etag, err := c.CopyPart(ctx, u, len(etags)+1, period.Key, 0, n)
		if err != nil {
			return err
		}
		etags = append(etags, etag)
		stored(n)
	}
	if err := c.CompleteUpload(ctx, u, etags); err != nil {
		return err
	}
	return c.deleteKeys(ctx, []string{period.Key})
}
