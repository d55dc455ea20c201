// Package manifest says which names exist and which object each one is.
//
// [Tree] is the read-only view that the file system walks. [Live] answers it
// from listings that are remembered for a bounded time. Names and keys differ
// where a key cannot be a path (a//b, ., .., over-long or non-UTF-8 names); the
// one rule for such keys is written in NAMES.md and held here.
//
// The package reads names only. The bytes of an object are the cache's, names
// that were created locally are the file system's.
package manifest
