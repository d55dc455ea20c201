package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Listing asks the bucket for its keys. It is the only source that needs nothing
// prepared.
type Listing struct {
	// Old is a manifest of the same prefix, nil if there is none. What it knows of
	// objects that have not changed is kept, and not asked for again.
	Old *manifest.Snapshot
	// Below limits the listing to keys that begin with one of these; the rest is
	// taken from Old. Empty means everything.
	Below []string
}

var _ Source = (*Listing)(nil)

func (l *Listing) describe() string {
	switch {
	case l.Old == nil:
		return "listing"
	case len(l.Below) == 0:
		return fmt.Sprintf("listing over generation %d", l.Old.Info().Generation)
	default:
		return fmt.Sprintf("listing of %q over generation %d", l.below(""), l.Old.Info().Generation)
	}
}

func (*Listing) period() (began, ended time.Time) { return time.Time{}, time.Time{} }

// properties tells what the manifest was made over: of the rest, Old's time holds.
func (l *Listing) properties() map[string]string {
	if l.Old == nil {
		return nil
	}
	p := map[string]string{"over-generation": strconv.FormatUint(l.Old.Info().Generation, 10)}
	if len(l.Below) > 0 {
		p["over-began"] = l.Old.Info().Began.UTC().Format(time.RFC3339)
		p["below"] = fmt.Sprintf("%q", l.below(""))
	}
	return p
}

// below returns the prefixes to list, without those that another one contains.
func (l *Listing) below(whole string) []string {
	if len(l.Below) == 0 {
		return []string{whole}
	}
	sorted := slices.Clone(l.Below)
	slices.Sort(sorted)
	var out []string
	for _, p := range sorted {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// base adds what is taken from Old as it is. It is not logged: Old is still there
// when a killed build goes on.
func (l *Listing) base(ctx context.Context, b *Build) error {
	for _, p := range l.Below {
		if !strings.HasPrefix(p, b.cfg.Prefix) {
			return fmt.Errorf("prefix %q is not below %q", p, b.cfg.Prefix)
		}
	}
	if l.Old == nil || len(l.Below) == 0 {
		return nil
	}
	below := l.below("")
	kept := batch{}
	for r, err := range l.Old.Records(ctx, b.cfg.Prefix) {
		if err != nil {
			return fmt.Errorf("read the old manifest: %w", err)
		}
		if slices.ContainsFunc(below, func(p string) bool { return strings.HasPrefix(r.Key, p) }) {
			continue
		}
		if kept.records = append(kept.records, r); len(kept.records) == pageKeys {
			if err := b.take(&kept); err != nil {
				return err
			}
			kept.records = kept.records[:0]
		}
	}
	return b.take(&kept)
}

// read lists what no batch covers. The unit of a batch is the prefix that was
// listed.
func (l *Listing) read(ctx context.Context, b *Build, done []cover) error {
	spans := map[string][]span{}
	for i := range done {
		spans[done[i].unit] = append(spans[done[i].unit], done[i].keys)
	}
	below := l.below(b.cfg.Prefix)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.cfg.Parallel)
	for _, prefix := range below {
		one := &lister{
			bucket: b.cfg.Bucket, prefix: prefix, workers: max(1, b.cfg.Parallel/len(below)),
			emit: func(ctx context.Context, objects []oss.ListedObject, all span) error {
				if all.empty() {
					return nil
				}
				records, err := l.records(ctx, b, objects)
				if err != nil {
					return err
				}
				return b.put(&batch{covers: cover{unit: prefix, keys: all}, records: records})
			},
		}
		group.Go(func() error { return one.run(ctx, gaps(span{}, spans[prefix])) })
	}
	return group.Wait()
}

// records returns what a manifest holds of the listed objects.
func (l *Listing) records(ctx context.Context, b *Build, objects []oss.ListedObject) ([]manifest.Record, error) {
	var known, unknown []manifest.Record
	for i := range objects {
		if b.own(objects[i].Key) {
			continue
		}
		r := manifest.RecordOf(&objects[i])
		if l.Old != nil {
			old, err := l.Old.Get(ctx, r.Key)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read the old manifest: %w", err)
			}
			if err == nil && old.Object() == r.Object() && old.Symlink == r.Symlink && (old.Attr != nil || !b.cfg.Attrs && !r.Symlink) {
				known = append(known, old)
				continue
			}
		}
		unknown = append(unknown, r)
	}
	unknown, err := b.describe(ctx, unknown)
	return append(unknown, known...), err
}
