package snapfile

import (
	"encoding/binary"
	"math"
)

// Totals counts what is in a stretch of directories.
type Totals struct {
	// Rows are objects, markers included, and directories in their parents.
	Rows uint64
	// Subdirectories is how many of the rows are directories.
	Subdirectories uint64
	// Files is how many objects are not markers of directories, and Bytes what they
	// hold.
	Files, Bytes uint64
	// Problems is how many keys are not shown under their own name.
	Problems uint64
}

// Sub returns what t counts and u does not.
func (t Totals) Sub(u Totals) Totals {
	return Totals{
		Rows: t.Rows - u.Rows, Subdirectories: t.Subdirectories - u.Subdirectories,
		Files: t.Files - u.Files, Bytes: t.Bytes - u.Bytes, Problems: t.Problems - u.Problems,
	}
}

// Add returns what t and u count together.
func (t Totals) Add(u Totals) Totals {
	return Totals{
		Rows: t.Rows + u.Rows, Subdirectories: t.Subdirectories + u.Subdirectories,
		Files: t.Files + u.Files, Bytes: t.Bytes + u.Bytes, Problems: t.Problems + u.Problems,
	}
}

func (t *Totals) fields() [5]*uint64 {
	return [5]*uint64{&t.Rows, &t.Subdirectories, &t.Files, &t.Bytes, &t.Problems}
}

// dirBuffer collects the directories of a block of the directory table.
type dirBuffer struct {
	prefixes nameList
	// before counts what is in the directories before the block, in those of the
	// block each.
	before Totals
	in     []Totals
}

// append appends the encoded block, before it is packed.
func (d *dirBuffer) append(b []byte, scratch []uint64) []byte {
	for _, f := range d.before.fields() {
		b = binary.AppendUvarint(b, *f)
	}
	for i := range d.before.fields() {
		values := make([]uint64, len(d.in))
		for j := range d.in {
			values[j] = *d.in[j].fields()[i]
		}
		b = appendColumn(b, values, scratch)
	}
	return appendNames(b, &d.prefixes)
}

// dirBlock is a block of the directory table, decoded.
type dirBlock struct {
	prefixes nameList
	// before counts, for each directory and for what follows the last, what is in
	// the directories before it.
	before []Totals
}

func (b *dirBlock) size() int { return b.prefixes.size() + 40*cap(b.before) + 64 }

// decodeDirectories decodes a block of n directories.
func decodeDirectories(in *input, n int) (*dirBlock, error) {
	b := dirBlock{before: make([]Totals, n+1)}
	for _, f := range b.before[0].fields() {
		*f = in.uvarint()
	}
	for i := range b.before[0].fields() {
		c := in.column(n)
		if in.bad {
			return nil, errMalformed
		}
		for j := range n {
			v, sum := c.at(j), *b.before[j].fields()[i]
			if v > math.MaxInt64 || sum > math.MaxInt64 {
				return nil, errMalformed
			}
			*b.before[j+1].fields()[i] = sum + v
		}
	}
	b.prefixes = in.names(n)
	if err := in.done(); err != nil {
		return nil, err
	}
	return &b, nil
}
