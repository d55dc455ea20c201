package state

import (
	"strings"

	"github.com/tidwall/btree"
)

// orderedNames has the names of directories in the order of their keys, but for those
// that are gone: a listing finds where it goes on without looking at what is before. A
// directory has an order from its first listing on.
type orderedNames map[string]*btree.BTreeG[orderedName]

// orderedName is a name with what it means.
type orderedName struct {
	base string
	Name
}

func (a orderedName) less(b orderedName) bool {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c < 0
	}
	return a.base < b.base
}

// shown reports whether there is a name that a listing shows.
func (n Name) shown() bool { return n.Kind != 0 && n.Kind != NameGone }

// of returns the order of a directory that has these names.
func (o orderedNames) of(dir string, names map[string]Name) *btree.BTreeG[orderedName] {
	t := o[dir]
	if t == nil {
		t = btree.NewBTreeGOptions(orderedName.less, btree.Options{NoLocks: true})
		for base, n := range names {
			if n.shown() {
				t.Set(orderedName{base, n})
			}
		}
		o[dir] = t
	}
	return t
}

// replace notes that base means now what it did not before. Either may be nothing.
func (o orderedNames) replace(dir, base string, before, now Name) {
	t := o[dir]
	if t == nil {
		return
	}
	if before.shown() {
		t.Delete(orderedName{base, before})
	}
	if now.shown() {
		t.Set(orderedName{base, now})
	}
}

// After gives the names of which the key is larger than key to yield, until it returns false.
func (o orderedNames) After(dir, key string, names map[string]Name, yield func(base string, n Name) bool) {
	o.of(dir, names).Ascend(orderedName{base: "", Name: Name{Key: key + "\x00"}}, func(n orderedName) bool {
		return yield(n.base, n.Name)
	})
}
