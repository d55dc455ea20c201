package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Swap is the step of a tree from one generation of names to the next.
type Swap struct {
	// Before and After are the two generations. Both can be read until Done.
	Before, After Tree
	// Done lets go of what only Before needs. It must be called once.
	Done func()
}

// Difference is a name that does not mean after a [Swap] what it meant before.
type Difference struct {
	Name string
	// Before and After are the entries of that name, nil if there was none or is
	// none. They hold only while the difference is looked at.
	Before, After *Entry
}

// diffEntries is how many entries of a directory are compared at once.
const diffEntries = 1024

// Diff gives yield every name in dir that has come, gone or changed, until it
// returns false. A name may come twice where its object and a directory of that
// name took each other's place. Memory does not depend on the size of dir.
func (s *Swap) Diff(ctx context.Context, dir string, yield func(Difference) bool) error {
	before := sequence{tree: s.Before, dir: dir}
	after := sequence{tree: s.After, dir: dir}
	for {
		b, err := before.peek(ctx)
		if err != nil {
			return fmt.Errorf("compare directory %q with the generation before: %w", dir, err)
		}
		a, err := after.peek(ctx)
		if err != nil {
			return fmt.Errorf("compare directory %q with the generation after: %w", dir, err)
		}
		if b == nil && a == nil {
			return nil
		}
		order := 0
		switch {
		case b == nil:
			order = 1
		case a == nil:
			order = -1
		default:
			order = strings.Compare(b.Object.Key, a.Object.Key)
		}
		more := true
		switch {
		case order < 0:
			more = yield(Difference{Name: b.Name, Before: b})
			before.next()
		case order > 0:
			more = yield(Difference{Name: a.Name, After: a})
			after.next()
		default:
			switch {
			case b.Name != a.Name:
				more = yield(Difference{Name: b.Name, Before: b}) && yield(Difference{Name: a.Name, After: a})
			case b.Kind != a.Kind || b.Object != a.Object || !b.Attr.Equal(a.Attr):
				more = yield(Difference{Name: a.Name, Before: b, After: a})
			}
			before.next()
			after.next()
		}
		if !more {
			return nil
		}
	}
}

// sequence reads a directory of a tree entry by entry, in the order of keys.
type sequence struct {
	tree    Tree
	dir     string
	cursor  string
	pending []Entry
	end     bool
}

// peek returns the next entry, nil at the end or where there is no such directory.
func (s *sequence) peek(ctx context.Context) (*Entry, error) {
	if len(s.pending) == 0 && !s.end {
		var err error
		s.pending, _, err = s.tree.ReadDir(ctx, s.dir, s.cursor, diffEntries)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		s.end = len(s.pending) == 0
	}
	if s.end {
		return nil, nil
	}
	return &s.pending[0], nil
}

// next takes the entry that peek returned.
func (s *sequence) next() {
	s.cursor = s.pending[0].Cursor
	s.pending = s.pending[1:]
}
