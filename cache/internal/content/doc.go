// Package content divides object versions into segments and blocks, names them, and
// computes their checksums.
//
// Everything here is a plain value: nothing locks, waits, reads or writes. An
// [Identity] names a version in memory and on SSD. Its [Geometry] says which blocks it
// has; a [Span] is a run of those within a segment, a [BlockSet] any of those. [Sums]
// are what is kept to tell whether a block is right.
package content
