// Package index remembers on disk which blocks the files of objects hold, with their
// checksums, and when the objects were used.
//
// [Index] is a bbolt database, whose damage shows as [ErrUnusable] and never as a panic.
// Its pages are checked before bbolt sees them (pages.go). What it stores are records,
// each sealed with its key (record.go), and notes of others (notes.go).
// cache/FORMAT.md describes them byte by byte.
//
// The index knows nothing of files: whoever stores a record says that the blocks were
// synced, and whoever removes one removes the file after it.
package index
