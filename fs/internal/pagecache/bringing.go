package pagecache

import (
	"context"
	"io"
	"log/slog"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// Bringing brings files of the cache into the page cache, one after another.
type Bringing struct {
	cache *cache.Cache
	pages *Pages
	log   *slog.Logger
	queue chan oss.Object
}

// NewBringing returns one that brings files of c as far as pages say that memory is free.
func NewBringing(c *cache.Cache, pages *Pages, log *slog.Logger) *Bringing {
	return &Bringing{cache: c, pages: pages, log: log, queue: make(chan oss.Object, bringMost)}
}

// bringMost is how many files may wait for it. Others are left out.
const bringMost = 16

// bringStep is how many bytes of a file are brought at once, as many as a READ may have.
const bringStep = 1 << 20

// Add has a version brought into memory.
func (b *Bringing) Add(version oss.Object) {
	select {
	case b.queue <- version:
	default:
	}
}

// Run brings what is added until ctx ends.
func (b *Bringing) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case version := <-b.queue:
			if err := b.BringIn(ctx, version); err != nil {
				b.log.Info("a file that is read again and again stays out of passthrough", "key", version.Key, "err", err)
			}
		}
	}
}

// BringIn reads the cache's file of a version, unless memory is wanted for other things.
// Nobody waits for it.
func (b *Bringing) BringIn(ctx context.Context, version oss.Object) error {
	h, err := b.cache.Open(version)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // a handle that is closed once
	file, ok := h.WholeFile()
	if !ok {
		return nil
	}
	buf := make([]byte, bringStep)
	for off := int64(0); off < version.Size && ctx.Err() == nil; off += int64(len(buf)) {
		if _, ok := h.WholeFile(); !ok {
			return nil // a writer has it, and nobody else may hold it open
		}
		if total, free := b.pages.Memory(); free < total/BringFree+version.Size-off {
			return nil
		}
		if _, err := file.ReadAt(buf[:min(int64(len(buf)), version.Size-off)], off); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}
