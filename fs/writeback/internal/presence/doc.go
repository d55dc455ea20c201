// Package presence says which bytes of a staged file are there, of a file that was opened for
// writing and not fetched: the others are those of an object.
//
// A [Set] is safe for concurrent use. It holds its own lock, under which nothing else is taken,
// and reads and writes nothing.
package presence
