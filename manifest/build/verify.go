package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Sample compares some of a manifest with its bucket. To compare all of it, build
// another manifest from a listing and use [Diff].
type Sample struct {
	// Snapshot is compared with Bucket.
	Snapshot *manifest.Snapshot
	Bucket   Bucket
	// Prefix is what the manifest is of.
	Prefix string
	// Objects is how many objects of the manifest are asked for, Pages how many
	// pages of a listing are compared: only a listing shows what is new.
	Objects, Pages int
	// Parallel is how many requests are made at once.
	Parallel int
	// Seed makes the choice repeatable.
	Seed uint64
	// Tell, if set, is told of every key that differs, one at a time.
	Tell func(Difference) error
	// Progress, if set, is told how many of all requests are answered. It may be called from many
	// goroutines.
	Progress func(done, all int64)

	mu struct {
		sync.Mutex
		counts Counts
		seen   map[string]bool
	}
}

// Run compares.
func (s *Sample) Run(ctx context.Context) (Counts, error) {
	s.mu.seen = map[string]bool{}
	chosen, err := s.choose(ctx)
	if err != nil {
		return Counts{}, err
	}
	// A page begins at the start, and after some of the chosen keys.
	after := []string{""}
	for i := 1; i < s.Pages && i < len(chosen); i++ {
		after = append(after, chosen[i*len(chosen)/s.Pages].Key)
	}
	all := int64(len(after) + len(chosen))
	var done atomic.Int64
	progress := func() {
		if s.Progress != nil {
			s.Progress(done.Add(1), all)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, s.Parallel))
	for _, key := range after {
		group.Go(func() error {
			defer progress()
			return s.page(ctx, key)
		})
	}
	for i := range chosen {
		group.Go(func() error {
			defer progress()
			return s.object(ctx, &chosen[i])
		})
	}
	err = group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.counts, err
}

// choose returns objects of the manifest, each as likely as every other.
func (s *Sample) choose(ctx context.Context) ([]manifest.Record, error) {
	random := rand.New(rand.NewPCG(s.Seed, s.Seed))
	chosen := make([]manifest.Record, 0, s.Objects)
	met := int64(0)
	for r, err := range s.Snapshot.Records(ctx, s.Prefix) {
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		met++
		if len(chosen) < s.Objects {
			chosen = append(chosen, r)
		} else if i := random.Int64N(met); i < int64(s.Objects) {
			chosen[i] = r
		}
	}
	return chosen, ctx.Err()
}

// object asks for one object.
func (s *Sample) object(ctx context.Context, r *manifest.Record) error {
	page, err := s.Bucket.List(ctx, oss.ListRequest{Prefix: r.Key, MaxKeys: 1})
	if err != nil {
		return err
	}
	if len(page.Objects) == 0 || page.Objects[0].Key != r.Key {
		return s.judge(r, nil)
	}
	now := manifest.RecordOf(&page.Objects[0])
	return s.judge(r, &now)
}

// page compares one page of a listing.
func (s *Sample) page(ctx context.Context, after string) error {
	page, err := s.Bucket.List(ctx, oss.ListRequest{Prefix: s.Prefix, StartAfter: after, MaxKeys: pageKeys})
	if err != nil {
		return err
	}
	b := Build{cfg: Config{Prefix: s.Prefix}}
	for i := range page.Objects {
		if b.own(page.Objects[i].Key) {
			continue
		}
		now := manifest.RecordOf(&page.Objects[i])
		old, err := s.Snapshot.Get(ctx, now.Key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = s.judge(nil, &now)
		case err == nil:
			err = s.judge(&old, &now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judge counts what the manifest and the bucket say of a key, the first time.
func (s *Sample) judge(old, now *manifest.Record) error {
	d := Difference{}
	switch {
	case now == nil:
		d = Difference{Kind: Removed, Old: *old}
	case old == nil:
		d = Difference{Kind: Added, New: *now}
	case differs(old, now):
		d = Difference{Kind: Changed, Old: *old, New: *now}
	default:
		d.Old = *old
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.seen[d.Key()] {
		return nil
	}
	s.mu.seen[d.Key()] = true
	if d.Kind == "" {
		s.mu.counts.Same++
		return nil
	}
	s.mu.counts.count(d.Kind)
	if s.Tell == nil {
		return nil
	}
	return s.Tell(d)
}
