package journal

import "os"

// Disk is what promises of durability rest on. Tests put one in its place that loses what
// it was not asked to keep.
type Disk interface {
	// WriteAt writes all of b to the file at off, or fails.
	WriteAt(f *os.File, b []byte, off int64) error
	// Sync returns when what was written to the file is on the disk.
	Sync(f *os.File) error
	// SyncDir does the same for the names in a directory.
	SyncDir(path string) error
}
