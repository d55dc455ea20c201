package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// Which part of filesystem answers which request. Open, Release, Forget and StatFs concern more
// than one.

// OpenDir implements [fuse.RawFileSystem].
func (f *filesystem) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return f.directories.OpenDir(cancel, in, out)
}

// ReleaseDir implements [fuse.RawFileSystem].
func (f *filesystem) ReleaseDir(in *fuse.ReleaseIn) {
	f.directories.ReleaseDir(in)
}

// ReadDir implements [fuse.RawFileSystem].
func (f *filesystem) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.directories.ReadDir(cancel, in, out)
}

// ReadDirPlus implements [fuse.RawFileSystem].
func (f *filesystem) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.directories.ReadDirPlus(cancel, in, out)
}

// Ioctl implements [fuse.RawFileSystem].
func (f *filesystem) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, input []byte, out *fuse.IoctlOut, output []byte) fuse.Status {
	return f.directories.Ioctl(cancel, in, input, out, output)
}

// Lookup implements [fuse.RawFileSystem].
func (f *filesystem) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return f.directories.Lookup(cancel, in, name, out)
}

// Readlink implements [fuse.RawFileSystem].
func (f *filesystem) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	return f.directories.Readlink(cancel, in)
}

// GetAttr implements [fuse.RawFileSystem].
func (f *filesystem) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.attributes.GetAttr(cancel, in, out)
}

// SetAttr implements [fuse.RawFileSystem].
func (f *filesystem) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.attributes.SetAttr(cancel, in, out)
}

// GetXAttr implements [fuse.RawFileSystem].
func (f *filesystem) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	return f.attributes.GetXAttr(cancel, in, name, dest)
}

// ListXAttr implements [fuse.RawFileSystem].
func (f *filesystem) ListXAttr(cancel <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	return f.attributes.ListXAttr(cancel, in, dest)
}

// SetXAttr implements [fuse.RawFileSystem].
func (f *filesystem) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return f.attributes.SetXAttr(cancel, in, name, value)
}

// RemoveXAttr implements [fuse.RawFileSystem].
func (f *filesystem) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.attributes.RemoveXAttr(cancel, in, name)
}

// Create implements [fuse.RawFileSystem].
func (f *filesystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return f.naming.Create(cancel, in, name, out)
}

// Mknod implements [fuse.RawFileSystem].
func (f *filesystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.naming.Mknod(cancel, in, name, out)
}

// Tmpfile implements [fuse.RawFileSystem].
func (f *filesystem) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return f.naming.Tmpfile(cancel, in, out)
}

// Link implements [fuse.RawFileSystem].
func (f *filesystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.naming.Link(cancel, in, name, out)
}

// Mkdir implements [fuse.RawFileSystem].
func (f *filesystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.naming.Mkdir(cancel, in, name, out)
}

// Symlink implements [fuse.RawFileSystem].
func (f *filesystem) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return f.naming.Symlink(cancel, in, target, name, out)
}

// Unlink implements [fuse.RawFileSystem].
func (f *filesystem) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.naming.Unlink(cancel, in, name)
}

// Rmdir implements [fuse.RawFileSystem].
func (f *filesystem) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.naming.Rmdir(cancel, in, name)
}

// Rename implements [fuse.RawFileSystem].
func (f *filesystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	return f.naming.Rename(cancel, in, oldName, newName)
}

// Read implements [fuse.RawFileSystem].
func (f *filesystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	return f.reads.Read(cancel, in, buf)
}

// Write implements [fuse.RawFileSystem].
func (f *filesystem) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return f.writes.Write(cancel, in, data)
}

// Writev implements [fuse.RawFileSystem].
func (f *filesystem) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	return f.writes.Writev(cancel, in, data)
}

// Flush implements [fuse.RawFileSystem].
func (f *filesystem) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	return f.writes.Flush(cancel, in)
}

// Fsync implements [fuse.RawFileSystem].
func (f *filesystem) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.writes.Fsync(cancel, in)
}

// FsyncDir implements [fuse.RawFileSystem].
func (f *filesystem) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.writes.FsyncDir(cancel, in)
}

// Fallocate implements [fuse.RawFileSystem].
func (f *filesystem) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return f.writes.Fallocate(cancel, in)
}

// CopyFileRange implements [fuse.RawFileSystem].
func (f *filesystem) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return f.writes.CopyFileRange(cancel, in)
}
