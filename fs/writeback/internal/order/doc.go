// Package order says which pending operation may be published now, promise 4 of fs/SEMANTICS.md:
// an object appears after what was closed before it in its directory or below.
//
// An [Operation] is what is to be done to one key. A [Queue] has all of them in the order in which
// they were wanted, and [Queue.Scan] says which may begin; what it cannot know, for example that
// the object store refuses one, it asks for as a [Standing]. [Recent] finds what was committed
// last beside, above or below a directory.
//
// The package computes. It knows no disk, no object store, no time and no lock: whoever has the
// queue holds what guards it.
package order
