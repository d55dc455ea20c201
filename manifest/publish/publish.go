package publish

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss"
)

// Options say how a manifest is published. The zero value is the default.
type Options struct {
	// Keep is how many generations stay in the bucket, the new one included; 0 means
	// DefaultKeep, negative means all.
	Keep int
	// PartBytes is the size of the parts of a file that is uploaded in parts; 0 means
	// 32 MiB. A file of no more than that is uploaded at once.
	PartBytes int64
	// Progress, if set, is told how many bytes of the file are in the bucket. It may
	// be called from many goroutines.
	Progress func(done int64)
}

// DefaultKeep is how many generations stay in the bucket: a mount that is
// downloading one has the time of four further ones to finish.
const DefaultKeep = 5

// ecma is the table of CRC-64/XZ.
var ecma = crc64.MakeTable(crc64.ECMA)

// Publish makes the file the generation of the manifest of prefix that facts
// describes. [ErrLost] means that the number is taken: what was published in its
// place is whole, and the file can be published under the next number.
func Publish(ctx context.Context, bucket oss.Bucket, prefix, file string, facts Facts, o Options) (Generation, error) {
	p := publisher{bucket: bucket, prefix: prefix, options: o}
	if p.options.Keep == 0 {
		p.options.Keep = DefaultKeep
	}
	if p.options.PartBytes == 0 {
		p.options.PartBytes = 32 << 20
	}
	if facts.Number == 0 {
		return Generation{}, errors.New("a published manifest needs a generation, from 1 on")
	}
	facts.Published = time.Now().UTC().Truncate(time.Second)
	g, err := p.upload(ctx, file, facts)
	if err != nil {
		return Generation{}, fmt.Errorf("publish generation %d: %w", facts.Number, err)
	}
	if err := p.point(ctx); err != nil {
		return Generation{}, fmt.Errorf("publish generation %d: it is in the bucket, but latest does not point to it yet, run the command again: %w", facts.Number, err)
	}
	if err := p.tidy(ctx, g.Number); err != nil {
		return g, fmt.Errorf("generation %d is published, but old ones could not be removed: %w", facts.Number, err)
	}
	return g, nil
}

// publisher is one run of Publish.
type publisher struct {
	bucket  oss.Bucket
	prefix  string
	options Options
}

// upload puts the file where its generation lies.
func (p *publisher) upload(ctx context.Context, path string, facts Facts) (_ Generation, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Generation{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := crc64.New(ecma)
	size, err := io.Copy(sum, f)
	if err != nil {
		return Generation{}, err
	}
	text, err := pointer{Facts: facts, CRC64: sum.Sum64()}.encode()
	if err != nil {
		return Generation{}, err
	}
	key := Key(p.prefix, facts.Number)
	options := oss.PutOptions{Meta: map[string]string{metaName: text}, ForbidOverwrite: true, ContentType: "application/octet-stream"}
	var info oss.Info
	if size <= p.options.PartBytes {
		info, err = p.bucket.Put(ctx, key, io.NewSectionReader(f, 0, size), options)
		p.report(size)
	} else {
		info, err = p.uploadParts(ctx, key, f, size, options)
	}
	if errors.Is(err, oss.ErrExists) {
		return Generation{}, p.lost(ctx, facts.Number)
	}
	if err != nil {
		return Generation{}, err
	}
	if info.HasCRC64 && info.CRC64 != sum.Sum64() {
		return Generation{}, fmt.Errorf("the file changed while it was uploaded: %w", oss.ErrCorrupted)
	}
	return Generation{Facts: facts, Object: info.Object, CRC64: sum.Sum64()}, nil
}

// lost is the error of a publisher whose number is taken.
func (p *publisher) lost(ctx context.Context, number uint64) error {
	by := ""
	if winner, err := Find(ctx, p.bucket, p.prefix, number); err == nil {
		by = fmt.Sprintf(" by %s at %s", winner.Publisher, winner.Published.Format(time.RFC3339))
	}
	return fmt.Errorf("%w: that number was published%s; this manifest was not: run the same command again to publish it as the next generation", ErrLost, by)
}

// uploadParts uploads a large file. What a failure leaves is aborted.
func (p *publisher) uploadParts(ctx context.Context, key string, f *os.File, size int64, o oss.PutOptions) (oss.Info, error) {
	upload, err := p.bucket.CreateUpload(ctx, key, o)
	if err != nil {
		return oss.Info{}, err
	}
	parts := make([]oss.Part, (size+p.options.PartBytes-1)/p.options.PartBytes)
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range parts {
		group.Go(func() error {
			at := int64(i) * p.options.PartBytes
			n := min(p.options.PartBytes, size-at)
			part, err := p.bucket.UploadPart(inGroup, upload, i+1, io.NewSectionReader(f, at, n))
			if err != nil {
				return err
			}
			parts[i] = part
			p.report(n)
			return nil
		})
	}
	err = group.Wait()
	var info oss.Info
	if err == nil {
		info, err = p.bucket.CompleteUpload(ctx, upload, parts, o)
	}
	if err != nil {
		return oss.Info{}, errors.Join(err, p.bucket.AbortUpload(context.WithoutCancel(ctx), upload))
	}
	return info, nil
}

func (p *publisher) report(n int64) {
	if p.options.Progress != nil {
		p.options.Progress(n)
	}
}

// point makes latest point to the newest generation. A publisher that
// overwrites a newer pointer sees that when it looks again, and writes the newer
// one: whoever writes last has seen nothing newer.
func (p *publisher) point(ctx context.Context) error {
	for {
		newest, err := p.newest(ctx)
		if err != nil {
			return err
		}
		current, err := Latest(ctx, p.bucket, p.prefix)
		if err == nil && current.Number == newest.Number && current.Object == newest.Object {
			return nil
		}
		if err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrPointer) {
			return err
		}
		if err := p.write(ctx, newest); err != nil {
			return err
		}
	}
}

// newest returns the generation with the greatest number.
func (p *publisher) newest(ctx context.Context) (Generation, error) {
	for {
		found, err := numbers(ctx, p.bucket, p.prefix)
		if err != nil {
			return Generation{}, err
		}
		if len(found) == 0 {
			return Generation{}, errors.New("every generation was removed meanwhile")
		}
		g, err := Find(ctx, p.bucket, p.prefix, found[len(found)-1])
		if !errors.Is(err, ErrNone) {
			return g, err
		}
	}
}

// write writes the pointer.
func (p *publisher) write(ctx context.Context, g Generation) error {
	text, err := pointer{
		Facts: g.Facts, CRC64: g.CRC64, ETag: g.Object.ETag, Size: g.Object.Size, Modified: g.Object.ModTime,
	}.encode()
	if err != nil {
		return err
	}
	_, err = p.bucket.Put(ctx, pointerKey(p.prefix), strings.NewReader(text+"\n"), oss.PutOptions{
		ContentType: "application/json", Meta: map[string]string{metaName: text},
	})
	return err
}

// tidy removes the generations that are not kept, and what uploads of older ones
// left behind: they can only end as generations that nobody asks for.
func (p *publisher) tidy(ctx context.Context, number uint64) error {
	if p.options.Keep > 0 {
		found, err := numbers(ctx, p.bucket, p.prefix)
		if err != nil {
			return err
		}
		current, err := Latest(ctx, p.bucket, p.prefix)
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(n uint64) bool { return n > current.Number })
		var old []string
		for i := range max(0, len(found)-p.options.Keep) {
			old = append(old, Key(p.prefix, found[i]))
		}
		if len(old) > 0 {
			if err := p.bucket.Delete(ctx, old...); err != nil {
				return err
			}
		}
	}
	uploads, err := p.bucket.ListUploads(ctx, p.prefix+Directory)
	if err != nil {
		return err
	}
	for _, u := range uploads {
		if n, ok := numberOf(p.prefix, u.Key); ok && n < number {
			if err := p.bucket.AbortUpload(ctx, u); err != nil {
				return err
			}
		}
	}
	return nil
}
