package manifest

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pailfs/pailfs/oss"
)

// pageReader turns pages of a listing into a run.
type pageReader struct {
	prefix   string
	mounted  string
	start    string
	problems *problems

	records   []record
	inhabited bool
	// last is the greatest item seen, shown or not.
	last    string
	anyItem bool
}

// read takes in one page.
func (p *pageReader) read(page *oss.ListPage) {
	sorted := true
	add := func(key string, o *oss.ListedObject) {
		item, ok := strings.CutPrefix(key, p.prefix)
		if !ok || (o == nil && item == "") {
			return // not an answer to what was asked
		}
		p.inhabited = true
		// A server that folds nothing is folded here.
		if i := strings.IndexByte(item, '/'); i >= 0 {
			item, o = item[:i+1], nil
		}
		if !p.anyItem || item > p.last {
			p.last, p.anyItem = item, true
		}
		if item < p.start || !p.shown(item, o) {
			return
		}
		r := record{item: item}
		if o != nil {
			r = recordOf(item, o)
		}
		if n := len(p.records); n > 0 && p.records[n-1].item >= item {
			if p.records[n-1].item == item {
				return // a prefix seen twice
			}
			sorted = false
		}
		p.records = append(p.records, r)
	}
	objects, prefixes := page.Objects, page.Prefixes
	for len(objects) > 0 || len(prefixes) > 0 {
		if len(prefixes) == 0 || (len(objects) > 0 && objects[0].Key <= prefixes[0]) {
			add(objects[0].Key, &objects[0])
			objects = objects[1:]
		} else {
			add(prefixes[0], nil)
			prefixes = prefixes[1:]
		}
	}
	if !sorted {
		slices.SortStableFunc(p.records, func(a, b record) int { return strings.Compare(a.item, b.item) })
		p.records = slices.CompactFunc(p.records, func(a, b record) bool { return a.item == b.item })
	}
}

// shown reports whether item can be shown, and counts it if it cannot, or only
// under another name.
func (p *pageReader) shown(item string, o *oss.ListedObject) bool {
	if item == ownPrefix && (p.prefix == "" || p.prefix == p.mounted) {
		return false
	}
	if item == "" && o.Size == 0 && !o.Symlink {
		return true // the directory's marker
	}
	component := strings.TrimSuffix(item, "/")
	name := nameOf(component, false)
	length := len(p.prefix) + len(item)
	if length <= maxKey && len(name) <= maxName && name == component {
		return true
	}
	p.problems.add(p.prefix+item, reasonFor(item, name, length))
	return length <= maxKey && len(name) <= maxName
}

// reached reports whether the pages read so far tell of the first item that was
// wanted.
func (p *pageReader) reached() bool { return p.anyItem && p.last >= p.start }

// startAfter returns the key that a listing begins after so that it holds the
// item start of the directory prefix and, before it, as little as can be. Keys
// in requests are kept UTF-8 and no longer than maxKey.
func startAfter(prefix, start string) string {
	if start == "" {
		return ""
	}
	// What comes after everything in a directory begins after its last key.
	if i := strings.IndexByte(start, '/'); i >= 0 && i+1 < len(start) {
		return pad(prefix + start[:i+1])
	}
	if !utf8.ValidString(start) {
		i := 0
		for i < len(start) {
			r, n := utf8.DecodeRuneInString(start[i:])
			if r == utf8.RuneError && n <= 1 {
				break
			}
			i += n
		}
		return prefix + start[:i]
	}
	// The greatest string below start is start with its last character one less,
	// followed by the greatest character for ever. Once is enough.
	r, n := utf8.DecodeLastRuneInString(start)
	head := prefix + start[:len(start)-n]
	switch r {
	case 0:
		return head
	case 0xE000:
		r = 0xD7FF // surrogates are no characters
	default:
		r--
	}
	return pad(head + string(r))
}

// pad returns a key that is greater than almost all that begin with key.
func pad(key string) string {
	if len(key)+utf8.UTFMax > maxKey {
		return key
	}
	return key + string(utf8.MaxRune)
}
