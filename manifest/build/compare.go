package build

import (
	"context"
	"iter"

	"github.com/pailfs/pailfs/manifest"
)

// DifferenceKind says how a key differs.
type DifferenceKind string

// The kinds of differences.
const (
	// Added means that the key is new.
	Added DifferenceKind = "added"
	// Removed means that the key is gone.
	Removed DifferenceKind = "removed"
	// Changed means that the key holds another version, or has other attributes.
	Changed DifferenceKind = "changed"
)

// Difference is one key that two manifests, or a manifest and its bucket, do not
// agree on. Old is zero for Added, New for Removed.
type Difference struct {
	Kind     DifferenceKind
	Old, New manifest.Record
}

// Key is the key that differs.
func (d *Difference) Key() string {
	if d.Kind == Added {
		return d.New.Key
	}
	return d.Old.Key
}

// Counts are how many keys differ.
type Counts struct {
	Added   int64 `json:"added"`
	Removed int64 `json:"removed"`
	Changed int64 `json:"changed"`
	// Same is how many were compared and do not differ.
	Same int64 `json:"same"`
}

// Any reports whether anything differs.
func (c Counts) Any() bool { return c.Added+c.Removed+c.Changed > 0 }

func (c *Counts) count(k DifferenceKind) {
	switch k {
	case Added:
		c.Added++
	case Removed:
		c.Removed++
	case Changed:
		c.Changed++
	}
}

// Diff passes the keys below prefix that differ between two manifests, in order,
// to tell, unless it is nil.
func Diff(ctx context.Context, older, newer *manifest.Snapshot, prefix string, tell func(Difference) error) (Counts, error) {
	var counts Counts
	report := func(d Difference) error {
		counts.count(d.Kind)
		if tell == nil {
			return nil
		}
		return tell(d)
	}
	nextOld, stopOld := iter.Pull2(older.Records(ctx, prefix))
	defer stopOld()
	nextNew, stopNew := iter.Pull2(newer.Records(ctx, prefix))
	defer stopNew()
	o, oldErr, haveOld := nextOld()
	n, newErr, haveNew := nextNew()
	for haveOld || haveNew {
		if oldErr != nil || newErr != nil {
			return counts, firstOf(oldErr, newErr)
		}
		var err error
		tookOld, tookNew := true, true
		switch {
		case !haveNew || haveOld && o.Key < n.Key:
			tookNew = false
			err = report(Difference{Kind: Removed, Old: o})
		case !haveOld || n.Key < o.Key:
			tookOld = false
			err = report(Difference{Kind: Added, New: n})
		case differs(&o, &n):
			err = report(Difference{Kind: Changed, Old: o, New: n})
		default:
			counts.Same++
		}
		if err != nil {
			return counts, err
		}
		if tookOld {
			o, oldErr, haveOld = nextOld()
		}
		if tookNew {
			n, newErr, haveNew = nextNew()
		}
	}
	return counts, ctx.Err()
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// differs reports whether two records of a key tell of different versions, or of
// different attributes where both know some.
func differs(a, b *manifest.Record) bool {
	return a.Object() != b.Object() || a.Symlink != b.Symlink || a.Attr != nil && b.Attr != nil && !a.Attr.Equal(b.Attr)
}
