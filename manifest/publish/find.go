package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/oss"
)

// Latest returns the newest generation of the manifest of prefix. It makes one
// request. [ErrNone] means that there is none.
func Latest(ctx context.Context, bucket oss.Stater, prefix string) (Generation, error) {
	info, err := bucket.Head(ctx, pointerKey(prefix))
	if errors.Is(err, oss.ErrNotFound) {
		return Generation{}, fmt.Errorf("%w below %q: publish one with pailfs manifest build", ErrNone, prefix)
	}
	if err != nil {
		return Generation{}, fmt.Errorf("find the newest manifest: %w", err)
	}
	p, err := decodePointer(&info)
	if err != nil {
		return Generation{}, err
	}
	if p.ETag == "" || p.Size <= 0 {
		return Generation{}, fmt.Errorf("%w: %q points to nothing: publish again with pailfs manifest build", ErrPointer, info.Key)
	}
	return Generation{Facts: p.Facts, CRC64: p.CRC64, Object: oss.NewObject(Key(prefix, p.Number), p.ETag, p.Size, p.Modified)}, nil
}

// Find returns the generation with a number. One that does not exist, or not any
// more, is [ErrNone].
func Find(ctx context.Context, bucket oss.Stater, prefix string, number uint64) (Generation, error) {
	info, err := bucket.Head(ctx, Key(prefix, number))
	if errors.Is(err, oss.ErrNotFound) {
		return Generation{}, fmt.Errorf("%w as generation %d: see pailfs manifest show --all", ErrNone, number)
	}
	if err != nil {
		return Generation{}, fmt.Errorf("find generation %d: %w", number, err)
	}
	p, err := decodePointer(&info)
	if err != nil {
		return Generation{}, err
	}
	if p.Number != number {
		return Generation{}, fmt.Errorf("%w: %q says that it is generation %d", ErrPointer, info.Key, p.Number)
	}
	return Generation{Facts: p.Facts, CRC64: p.CRC64, Object: info.Object}, nil
}

// numbers returns the numbers of the generations that are there, oldest first.
func numbers(ctx context.Context, bucket oss.Lister, prefix string) ([]uint64, error) {
	var found []uint64
	request := oss.ListRequest{Prefix: prefix + Directory}
	for {
		page, err := bucket.List(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list published manifests: %w", err)
		}
		for i := range page.Objects {
			if n, ok := numberOf(prefix, page.Objects[i].Key); ok {
				found = append(found, n)
			}
		}
		if page.Next == "" {
			return found, nil
		}
		request.Token = page.Next
	}
}

// Next returns the number that the next generation may take.
func Next(ctx context.Context, bucket oss.Lister, prefix string) (uint64, error) {
	found, err := numbers(ctx, bucket, prefix)
	if err != nil || len(found) == 0 {
		return 1, err
	}
	return found[len(found)-1] + 1, nil
}

// Reader is what finding manifests needs of a bucket.
type Reader interface {
	oss.Lister
	oss.Stater
}

// List returns the generations that are kept, oldest first.
func List(ctx context.Context, bucket Reader, prefix string) ([]Generation, error) {
	found, err := numbers(ctx, bucket, prefix)
	if err != nil {
		return nil, err
	}
	var generations []Generation
	for _, n := range found {
		g, err := Find(ctx, bucket, prefix, n)
		if errors.Is(err, ErrNone) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		generations = append(generations, g)
	}
	return generations, nil
}
