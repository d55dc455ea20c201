package state

import (
	"github.com/pailfs/pailfs/oss"
)

// Mtime is the time of the last change in nanoseconds, as far as the state knows.
func (f *File) Mtime() int64 {
	switch {
	case f.Staged:
		return f.Stamp
	case f.Attr.Mtime != 0:
		return f.Attr.Mtime
	case f.Stamp != 0:
		// It was written here. The object has the time of its upload.
		return f.Stamp
	}
	return f.Object.ModTime.UnixNano()
}

// Described returns the object whose metadata goes along with what is made of it: that
// which the file was made from, or what the bucket has of the file since.
func (f *File) Described() oss.Object {
	if f.Origin.ETag == "" {
		return oss.Object{}
	}
	return f.Published
}
