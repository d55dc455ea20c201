package reader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
)

func runBucket(ctx context.Context, job Job, m *dataset.Manifest) (Outcome, error) {
	c, err := bare.Open(*job.Bucket)
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	switch job.Pattern {
	case Sequential:
		return getSequential(ctx, c, job, m)
	case Random:
		return getRandom(ctx, c, job, m)
	default:
		return getSmall(ctx, c, job, m)
	}
}

// getSequential reads each file in blocks, Readers of them at once. Blocks are
// not put in order for anyone: this is the most that the link and the client's
// library allow.
func getSequential(ctx context.Context, c *bare.Client, job Job, m *dataset.Manifest) (Outcome, error) {
	var out Outcome
	buffers := sync.Pool{New: func() any {
		p := make([]byte, job.BlockBytes)
		touch(p)
		return &p
	}}
	start := time.Now()
	for i := range m.Files {
		f := &m.Files[i]
		blocks := int((f.Size + int64(job.BlockBytes) - 1) / int64(job.BlockBytes))
		sums := make([]blockSum, blocks)
		var next atomic.Int64
		g, ctx := errgroup.WithContext(ctx)
		for range min(job.Readers, blocks) {
			g.Go(func() error {
				buf := buffers.Get().(*[]byte)
				defer buffers.Put(buf)
				for b := next.Add(1) - 1; b < int64(blocks); b = next.Add(1) - 1 {
					offset := b * int64(job.BlockBytes)
					p := (*buf)[:min(int64(job.BlockBytes), f.Size-offset)]
					answer, err := c.ReadRange(ctx, job.Prefix+f.Name, offset, p)
					if err != nil {
						return err
					}
					if job.Check == CRC64 {
						sums[b] = sumBlock(p, answer)
					} else if err := checkFile(job.Check, m, f, p, offset); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return Outcome{}, err
		}
		if job.Check == CRC64 {
			if err := checkCRC64(f, sums); err != nil {
				return Outcome{}, err
			}
		}
		out.Ops += int64(blocks)
		out.Bytes += f.Size
	}
	out.Seconds = time.Since(start).Seconds()
	return out, nil
}

func getRandom(ctx context.Context, c *bare.Client, job Job, m *dataset.Manifest) (Outcome, error) {
	pages, err := job.pages(m)
	if err != nil {
		return Outcome{}, err
	}
	var out Outcome
	buf := make([]byte, dataset.PageSize)
	start := time.Now()
	for _, p := range pages {
		f := &m.Files[p.file]
		before := time.Now()
		_, err := c.ReadRange(ctx, job.Prefix+f.Name, p.offset, buf)
		if job.EachLatency {
			out.Latencies = append(out.Latencies, time.Since(before).Seconds())
		}
		if err != nil {
			return Outcome{}, err
		}
		if err := checkPage(job.Check, m, f, buf, p.offset); err != nil {
			return Outcome{}, err
		}
		out.Ops++
		out.Bytes += int64(len(buf))
	}
	out.Seconds = time.Since(start).Seconds()
	return out, nil
}

func getSmall(ctx context.Context, c *bare.Client, job Job, m *dataset.Manifest) (Outcome, error) {
	files, err := job.Files(m)
	if err != nil {
		return Outcome{}, err
	}
	largest := int64(0)
	for _, f := range files {
		largest = max(largest, f.Size)
	}
	var next, bytes atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range job.Readers {
		g.Go(func() error {
			buf := make([]byte, largest)
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				f := files[i]
				if _, err := c.Read(ctx, job.Prefix+f.Name, buf[:f.Size]); err != nil {
					return err
				}
				if err := checkFile(job.Check, m, f, buf[:f.Size], 0); err != nil {
					return err
				}
				bytes.Add(f.Size)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Outcome{}, fmt.Errorf("read small objects: %w", err)
	}
	return Outcome{Seconds: time.Since(start).Seconds(), Bytes: bytes.Load(), Ops: int64(len(files))}, nil
}
