package snapfile

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"
)

// Info says what a file holds and where it comes from.
type Info struct {
	// Generation grows with each manifest of the same keys.
	Generation uint64
	// Began and Ended are when its making began and ended: what it says was true
	// of each key at some time between.
	Began, Ended time.Time
	// Root begins every key: "" or a key that ends with a slash.
	Root string
	// BuiltBy is the program that built it, Source what from.
	BuiltBy, Source string
	// Properties are what else its maker wrote down.
	Properties map[string]string

	// Objects is how many keys there are, markers of directories included,
	// Directories how many directories, the root included. Rows are both, without
	// the root. Bytes are what the objects hold.
	Objects, Directories, Rows, Bytes uint64
	// Attrs is how many objects have attributes beyond a listing's.
	Attrs uint64
	// Problems is how many keys are not shown under their own name; Examples are a
	// few of them.
	Problems uint64
	Examples []Example
}

// Example is a key that is not shown under its own name.
type Example struct{ Key, Reason string }

// Limits of what a footer holds.
const (
	maxProperties = 1 << 10
	maxExamples   = 100
	maxText       = 1 << 16
)

// append appends the encoded form of i.
func (i *Info) append(b []byte) []byte {
	b = binary.AppendUvarint(b, i.Generation)
	for _, t := range []time.Time{i.Began, i.Ended} {
		b = binary.AppendVarint(b, t.Unix())
		b = binary.AppendUvarint(b, uint64(t.Nanosecond()))
	}
	for _, s := range []string{i.Root, i.BuiltBy, i.Source} {
		b = appendText(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(i.Properties)))
	for _, name := range slices.Sorted(maps.Keys(i.Properties)) {
		b = appendText(appendText(b, name), i.Properties[name])
	}
	for _, n := range []uint64{i.Objects, i.Directories, i.Rows, i.Bytes, i.Attrs, i.Problems} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(i.Examples)))
	for _, e := range i.Examples {
		b = appendText(appendText(b, e.Key), e.Reason)
	}
	return b
}

// info decodes what Info.append appended.
func (in *input) info() Info {
	var i Info
	i.Generation = in.uvarint()
	for _, t := range []*time.Time{&i.Began, &i.Ended} {
		seconds := in.varint()
		*t = time.Unix(seconds, int64(in.length(999_999_999))).UTC()
	}
	for _, s := range []*string{&i.Root, &i.BuiltBy, &i.Source} {
		*s = in.text(maxText)
	}
	if n := in.length(maxProperties); n > 0 {
		i.Properties = make(map[string]string)
		for ; n > 0 && !in.bad; n-- {
			name := in.text(maxText)
			i.Properties[name] = in.text(maxText)
		}
	}
	for _, n := range []*uint64{&i.Objects, &i.Directories, &i.Rows, &i.Bytes, &i.Attrs, &i.Problems} {
		*n = in.length(math.MaxInt64)
	}
	for n := in.length(maxExamples); n > 0 && !in.bad; n-- {
		key := in.text(maxText)
		i.Examples = append(i.Examples, Example{Key: key, Reason: in.text(maxText)})
	}
	return i
}

// footer is the end of a file: what it holds and the upper levels of its indexes.
type footer struct {
	info       Info
	rows, dirs root
}

func (f *footer) append(b []byte) []byte {
	return f.dirs.append(f.rows.append(f.info.append(b)))
}

// decodeFooter decodes the footer of a file of so many bytes.
func decodeFooter(payload []byte, fileSize int64) (*footer, error) {
	in := &input{b: payload}
	var f footer
	f.info = in.info()
	f.rows = in.root(pagesOf(f.info.Rows), fileSize)
	f.dirs = in.root(pagesOf(f.info.Directories), fileSize)
	if err := in.done(); err != nil {
		return nil, err
	}
	if f.info.Directories == 0 || (f.info.Root != "" && f.info.Root[len(f.info.Root)-1] != '/') || len(f.info.Root) > MaxKey {
		return nil, errMalformed
	}
	return &f, nil
}

// blocksOf returns how many blocks hold n rows, or directories.
func blocksOf(n uint64) uint64 { return (n + blockRows - 1) / blockRows }

// pagesOf returns how many pages tell of the blocks that hold n rows.
func pagesOf(n uint64) uint64 { return (blocksOf(n) + pageBlocks - 1) / pageBlocks }
