// Package keysort sorts the entries of directories in bounded memory.
//
// An entry is a directory, an item in it and a value. Entries are ordered by
// directory, then by item, bytewise; of several with the same directory and
// item, the last one that was added stays.
//
// A [Sorter] collects entries in memory. When half of what it may use is full,
// that half is sorted and written to a file of its own, a run, while the other half
// fills. At the end the runs are merged: [Sorter.Sorted] reads all of them at once,
// after groups of them were merged if they are too many. Each run is read in chunks
// with a checksum, so that a bad disk is noticed.
package keysort
