package manifest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pailfs/pailfs/manifest/keysort"
	"github.com/pailfs/pailfs/manifest/snapfile"
)

// rowFeeder gives sorted entries to a writer and finds those that are not shown
// under their own name.
type rowFeeder struct {
	root     string
	out      *snapfile.Writer
	examples []snapfile.Example

	// dir is the current directory, shown whether there is a path to it.
	dir   []byte
	shown bool
	// item is the last item that may be beside a directory of its name, and lengths
	// those of its leading parts that are objects whose directory is still ahead.
	item    []byte
	lengths []int
}

func (f *rowFeeder) feed(ctx context.Context, entries *keysort.Entries) error {
	f.enter(nil)
	var row snapfile.Row
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e, err := entries.Next()
		if err != nil {
			return err
		}
		if e == nil {
			return nil
		}
		if !bytes.Equal(e.Dir, f.dir) {
			if err := f.out.Directory(string(e.Dir)); err != nil {
				return err
			}
			f.enter(e.Dir)
		}
		row = snapfile.Row{Item: e.Item}
		if len(e.Value) > 0 && !row.DecodeValue(e.Value) {
			return errors.New("a row that was sorted cannot be read again")
		}
		if err := f.out.Row(&row, f.problem(&row)); err != nil {
			return err
		}
	}
}

// enter begins the directory dir.
func (f *rowFeeder) enter(dir []byte) {
	f.dir = append(f.dir[:0], dir...)
	f.item, f.lengths = f.item[:0], f.lengths[:0]
	f.shown = len(f.root)+len(dir) <= maxKey
	for component := range strings.SplitSeq(strings.TrimSuffix(string(dir), "/"), "/") {
		f.shown = f.shown && (len(dir) == 0 || len(nameOf(component, false)) <= maxName)
	}
}

// problem reports whether row is not shown under its own name. That an object is
// beside a directory is found, and counted, when the directory comes.
func (f *rowFeeder) problem(row *snapfile.Row) bool {
	if !f.shown {
		return false // its directory is the problem
	}
	if row.Marker() {
		return false
	}
	if len(row.Item) == 0 && len(f.dir) > 0 && !plain(lastComponent(string(f.dir))) {
		f.follow(row)
		return false // its key is its directory's, which is counted
	}
	component := bytes.TrimSuffix(row.Item, []byte{'/'})
	length := len(f.root) + len(f.dir) + len(row.Item)
	if length <= maxKey && clearlyPlain(component) {
		f.follow(row)
		return false
	}
	name := nameOf(string(component), false)
	if length <= maxKey && len(name) <= maxName {
		f.follow(row)
		if name == string(component) {
			return false
		}
	}
	f.example(string(row.Item), name, length)
	return true
}

// lastComponent returns the last component of a prefix that ends with a slash.
func lastComponent(prefix string) string {
	prefix = prefix[:len(prefix)-1]
	return prefix[strings.LastIndexByte(prefix, '/')+1:]
}

// clearlyPlain reports whether a component is shown as it is, without looking
// closely.
func clearlyPlain(component []byte) bool {
	return len(component) > 2 && len(component) <= maxName && bytes.IndexByte(component, '%') < 0 && bytes.IndexByte(component, 0) < 0
}

// follow moves past row, which is shown under some name.
func (f *rowFeeder) follow(row *snapfile.Row) {
	if row.Directory() {
		if n := len(row.Item) - 1; n > 0 || len(f.lengths) > 0 {
			f.besides(row.Item[:n])
		}
	}
	for n := len(f.lengths); n > 0; n-- {
		if l := f.lengths[n-1]; l < len(row.Item) && row.Item[l] < '/' && bytes.Equal(f.item[:l], row.Item[:l]) {
			break
		}
		f.lengths = f.lengths[:n-1]
	}
	f.item = append(f.item[:0], row.Item...)
	if !row.Directory() {
		f.lengths = append(f.lengths, len(row.Item))
	}
}

// besides counts the object component, if there is one, which is beside a directory
// of its name.
func (f *rowFeeder) besides(component []byte) {
	for _, l := range f.lengths {
		// If it cannot be shown as it is, it was counted.
		if l == len(component) && bytes.Equal(f.item[:l], component) && plain(string(component)) {
			f.out.Problem()
			f.example(string(component), nameOf(string(component), true), 0)
			return
		}
	}
}

// example keeps an item as an example of those that are not shown under their own
// name.
func (f *rowFeeder) example(item, name string, length int) {
	if len(f.examples) == maxExamples {
		return
	}
	key := f.root + string(f.dir) + item
	if !utf8.ValidString(key) {
		key = strconv.Quote(key)
	}
	f.examples = append(f.examples, snapfile.Example{Key: key, Reason: reasonFor(item, name, length)})
}
