// Package writeback keeps a closed file safe on local disk until the object
// store has it.
//
// [Space] owns everything that was changed through a mount: the names that
// differ from the base tree, the files written, the journal, and what is still to
// be published. The file system above is an adapter: it turns a request into one
// call.
//
// Everything that must survive is a record (internal/state). A call validates under
// the lock, appends its record to the journal (internal/journal) and applies it
// with the function that a restart applies it with again, so the state
// is always what its journal says. A call returns after its record was
// written to the file; the committer (commit.go) brings files and journal to the
// disk in groups, or at once for fsync.
//
// What is to be published is one operation per key (internal/order says which may
// begin, publisher.go carries them out): an upload of a staged file, a copy of an
// object that was renamed, a deletion. Large files are sent while they are written
// (early.go). Before a key is changed it is compared with
// what was last seen there; what somebody else has put there stays (publisher.go,
// conflicting).
// A file that was published is handed to the cache, and its name is forgotten when
// the base tree shows it (settle.go).
//
// What a dead process left is read by [Inspect], copied out by [Export] and given up
// by [Discard], which need no bucket.
//
// JOURNAL.md describes the format byte by byte, DESIGN.md why things are as they
// are.
package writeback
