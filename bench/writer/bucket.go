package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
)

// runBucket sends the files without a file system: the limit of the link.
func runBucket(ctx context.Context, job Job) (out Outcome, err error) {
	client, err := bare.Open(*job.Bucket)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	content := make(chan *Content, job.Writers)
	for range job.Writers { // made before the clock starts
		content <- NewContent()
	}
	began := time.Now()
	g, putCtx := errgroup.WithContext(ctx)
	g.SetLimit(job.Writers)
	for _, f := range job.Files {
		if putCtx.Err() != nil {
			break
		}
		if job.Pattern != Small {
			do := sendParts
			if job.Pattern == Read {
				do = getParts
			}
			if err := do(ctx, client, job, f, content); err != nil {
				return Outcome{}, err
			}
			continue
		}
		g.Go(func() error {
			c := <-content
			defer func() { content <- c }()
			c.File(f.Name)
			p := make([]byte, f.Size)
			c.Fill(p, 0)
			_, err := client.Put(putCtx, job.Prefix+f.Name, p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Outcome{}, err
	}
	out = Outcome{Began: began.UnixNano(), Seconds: time.Since(began).Seconds(), Ops: int64(len(job.Files))}
	for _, f := range job.Files {
		out.Bytes += f.Size
	}
	return out, nil
}

// sendParts is a multipart upload with job.Writers parts under way at once.
func sendParts(ctx context.Context, client *bare.Client, job Job, f File, content chan *Content) error {
	upload, err := client.CreateUpload(ctx, job.Prefix+f.Name)
	if err != nil {
		return err
	}
	size := int64(job.PartBytes)
	etags := make([]string, (f.Size+size-1)/size)
	g, partCtx := errgroup.WithContext(ctx)
	g.SetLimit(job.Writers)
	for i := range etags {
		g.Go(func() error {
			c := <-content
			defer func() { content <- c }()
			c.File(f.Name)
			off := int64(i) * size
			p := make([]byte, min(size, f.Size-off))
			c.Fill(p, off)
			etag, err := client.PutPart(partCtx, upload, i+1, p)
			etags[i] = etag
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return errors.Join(err, client.AbortUpload(context.WithoutCancel(ctx), upload))
	}
	return client.CompleteUpload(ctx, upload, etags)
}

// getParts reads a file with job.Writers ranged GETs under way at once.
func getParts(ctx context.Context, client *bare.Client, job Job, f File, content chan *Content) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(job.Writers)
	buffers := make(chan []byte, job.Writers)
	for range job.Writers {
		buffers <- make([]byte, job.PartBytes)
	}
	for off := int64(0); off < f.Size; off += int64(job.PartBytes) {
		g.Go(func() error {
			c, buf := <-content, <-buffers
			defer func() { content <- c; buffers <- buf }()
			p := buf[:min(int64(len(buf)), f.Size-off)]
			if _, err := client.ReadRange(ctx, job.Prefix+f.Name, off, p); err != nil {
				return err
			}
			c.File(f.Name)
			for i := 0; i < len(p); i += blockBytes {
				if err := checkStamp(c, p[i:], off+int64(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// Missing returns how many of files the bucket does not have at their size below
// prefix, how many objects are there that are none of them, and in which second the
// last of those that are came. What only marks a directory is not counted.
func Missing(ctx context.Context, client *bare.Client, prefix string, files []File) (missing, strange int, newest time.Time, err error) {
	want := make(map[string]int64, len(files))
	for _, f := range files {
		want[prefix+f.Name] = f.Size
	}
	missing = len(files)
	err = client.List(ctx, prefix, func(o bare.Listed) error {
		size, ok := want[o.Key]
		switch {
		case ok && size == o.Size:
			missing--
			if o.LastModified.After(newest) {
				newest = o.LastModified
			}
		case !ok && o.Size > 0:
			strange++
		}
		return nil
	})
	return missing, strange, newest, err
}

// Verify reads all files back from the bucket and compares every byte.
func Verify(ctx context.Context, client *bare.Client, prefix string, files []File) error {
	const piece = 16 << 20
	type part struct {
		file File
		off  int64
	}
	parts := make(chan part)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(parts)
		for _, f := range files {
			for off := int64(0); off < f.Size; off += piece {
				select {
				case parts <- part{f, off}:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for range 8 {
		g.Go(func() error {
			c := NewContent()
			var buf []byte
			for p := range parts {
				n := min(piece, p.file.Size-p.off)
				if int64(cap(buf)) < n {
					buf = make([]byte, n)
				}
				if _, err := client.ReadRange(ctx, prefix+p.file.Name, p.off, buf[:n]); err != nil {
					return err
				}
				c.File(p.file.Name)
				if err := c.Check(buf[:n], p.off); err != nil {
					return fmt.Errorf("object %q: %w", p.file.Name, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}
