// Package store keeps objects in a local directory: which keys exist, what is
// known of each, and where its bytes lie.
//
// Names and bytes are kept apart, because keys such as "a", "a/", "a//b" and
// ".." coexist in an object store and in no file system. Bytes live in files
// named by number, and an object is a list of extents, that is pieces of such
// files. Files are written once and counted by the extents that refer to them:
// a copy inside the store and the completion of a multipart upload move no
// bytes, and whoever has opened an object holds its extents until it is closed,
// so a replaced version stays readable.
//
// Bodies up to 64 KiB are packed into shared files, larger ones have a file
// each, which can be sent with sendfile.
//
// The index is held in memory, a B-tree per bucket. Every change is one record
// appended to a journal before it is made in memory; that record is the instant
// at which the change happens. Opening the store reads the last snapshot and the
// journals after it, cuts a record that was being written when the process
// died, and removes files that nothing refers to. The formats are in FORMAT.md.
//
// What it keeps has a type each: dataDir the bytes, indexDir the snapshots and
// journals, buckets what they say. Store holds the lock over a change of several.
//
// Nothing is flushed to disk. What was committed survives the death of the
// process; loss of power may lose or damage it.
package store
