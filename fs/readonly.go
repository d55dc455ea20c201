package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// The kernel refuses these on a read-only mount without asking. They are answered
// for the case that somebody remounts it for writing.

// SetAttr implements [fuse.RawFileSystem].
func (f *filesystem) SetAttr(<-chan struct{}, *fuse.SetAttrIn, *fuse.AttrOut) fuse.Status {
	return fuse.EROFS
}

// Mknod implements [fuse.RawFileSystem].
func (f *filesystem) Mknod(<-chan struct{}, *fuse.MknodIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Mkdir implements [fuse.RawFileSystem].
func (f *filesystem) Mkdir(<-chan struct{}, *fuse.MkdirIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Unlink implements [fuse.RawFileSystem].
func (f *filesystem) Unlink(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return fuse.EROFS }

// Rmdir implements [fuse.RawFileSystem].
func (f *filesystem) Rmdir(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return fuse.EROFS }

// Rename implements [fuse.RawFileSystem].
func (f *filesystem) Rename(<-chan struct{}, *fuse.RenameIn, string, string) fuse.Status {
	return fuse.EROFS
}

// Link implements [fuse.RawFileSystem].
func (f *filesystem) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Symlink implements [fuse.RawFileSystem].
func (f *filesystem) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// SetXAttr implements [fuse.RawFileSystem].
func (f *filesystem) SetXAttr(<-chan struct{}, *fuse.SetXAttrIn, string, []byte) fuse.Status {
	return fuse.EROFS
}

// RemoveXAttr implements [fuse.RawFileSystem].
func (f *filesystem) RemoveXAttr(<-chan struct{}, *fuse.InHeader, string) fuse.Status {
	return fuse.EROFS
}

// Create implements [fuse.RawFileSystem].
func (f *filesystem) Create(<-chan struct{}, *fuse.CreateIn, string, *fuse.CreateOut) fuse.Status {
	return fuse.EROFS
}

// Tmpfile implements [fuse.RawFileSystem].
func (f *filesystem) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	return fuse.EROFS
}

// Write implements [fuse.RawFileSystem].
func (f *filesystem) Write(<-chan struct{}, *fuse.WriteIn, []byte) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

// Writev implements [fuse.RawFileSystem].
func (f *filesystem) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

// Fallocate implements [fuse.RawFileSystem].
func (f *filesystem) Fallocate(<-chan struct{}, *fuse.FallocateIn) fuse.Status { return fuse.EROFS }
