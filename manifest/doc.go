// Package manifest says which names exist and which object each one is.
//
// [Tree] is the read-only view that the file system walks. [Live] answers it
// from listings that are remembered for a bounded time and in bounded memory:
// each page is kept as a stretch of one directory in the order of keys, in which
// everything is known, presence and absence alike. What no stretch covers is
// asked for, a thousand neighbours at once.
//
// [Snapshot] answers it from a file that was made once by a [Builder] and says of
// all keys under a prefix which object each one is: no request is made, and memory
// does not depend on how many there are. FORMAT.md describes the file.
//
// Names and keys differ where a key cannot be a path (a//b, ., .., over-long
// names, an object beside a directory of the same name); the rules for such keys
// are written in NAMES.md and held here. DESIGN.md says why things are as they
// are.
//
// The package reads names only. The bytes of an object are the cache's, names
// that were created locally are the file system's.
package manifest
