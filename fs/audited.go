package fs

import (
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// audited is filesystem with an [Auditor] that is told of its answers. A mount without one does
// not have it, and pays nothing.
type audited struct {
	*filesystem
	to    Auditor
	opens auditedOpens
}

var _ fuse.RawFileSystem = (*audited)(nil)

// auditedRequest is a request that was admitted, until it is answered.
type auditedRequest struct {
	to     Auditor
	record Operation
}

// admit begins the record of a request. status is not OK if the caller was killed, or the mount was
// taken away, while there was no room for it.
func (a *audited) admit(cancel <-chan struct{}, caller *fuse.Caller, verb Verb) (r auditedRequest, status fuse.Status) {
	ctx := callers.NewRequest(caller, cancel)
	defer ctx.End()
	ctx.EndsWith(func() bool { return mountpoint.Gone(a.cfg.Mountpoint) })
	if a.to.Admit(ctx) != nil {
		return r, fuse.EINTR
	}
	return auditedRequest{to: a.to, record: Operation{
		Verb: verb, UID: caller.Uid, GID: caller.Gid, Process: a.to.Process(caller.Pid), Began: time.Now(),
	}}, fuse.OK
}

// done hands the record over, and returns how the request ended.
func (r *auditedRequest) done(status fuse.Status) fuse.Status {
	r.record.Took = time.Since(r.record.Began)
	r.record.Errno = syscall.Errno(status)
	r.to.Done(r.record)
	return status
}

// at notes which file the request is about.
func (r *auditedRequest) at(n *inode) {
	if n != nil {
		r.record.Path, r.record.Object = n.path(), n.audited()
	}
}

// audited returns the version that n is.
func (n *inode) audited() Version {
	if n.kind == manifest.Directory {
		return Version{Key: n.object.Key}
	}
	if o, staged := n.version(); !staged {
		return Version{Key: o.Key, ETag: o.ETag}
	}
	return Version{}
}

// sized returns the size that a file has now, nil if that is not known: what was written in
// passthrough shows in nothing else.
func (n *inode) sized() *Change {
	file := n.file.Load()
	if file == nil {
		return nil
	}
	if st, err := file.Stat(); err == nil {
		return &Change{Size: &st.Size}
	}
	return nil
}

// child returns the path of a name in a directory.
func (a *audited) child(dir uint64, name string) string {
	n := a.inodes.nodes.get(dir)
	if n == nil {
		return name
	}
	return strings.TrimSuffix(n.path(), "/") + "/" + name
}

// named returns the version that a name in a directory means, which the kernel has just looked
// up.
func (a *audited) named(cancel <-chan struct{}, caller *fuse.Caller, dir uint64, name string) Version {
	n := a.inodes.nodes.get(dir)
	if n == nil || n.kind != manifest.Directory || a.inodes.space == nil {
		return Version{}
	}
	ctx := callers.NewRequest(caller, cancel)
	defer ctx.End()
	e, _, err := a.inodes.lookup(ctx, n, name)
	if err != nil || names.IsLocal(e.Kind) {
		return Version{}
	}
	if e.File != nil {
		if o, staged := e.File.Content(); !staged {
			return Version{Key: o.Key, ETag: o.ETag}
		}
		return Version{}
	}
	if e.Kind == manifest.Directory {
		return Version{Key: e.Object.Key}
	}
	return Version{Key: e.Object.Key, ETag: e.Object.ETag}
}

// What an open allows.
const (
	readAccess   = "read"
	writeAccess  = "write"
	updateAccess = "read-write"
)

// accessOf says what an open with these flags allows.
func accessOf(flags uint32) string {
	switch flags & syscall.O_ACCMODE {
	case syscall.O_RDONLY:
		return readAccess
	case syscall.O_WRONLY:
		return writeAccess
	}
	return updateAccess
}

// auditedOpen is an open description until it is closed.
type auditedOpen struct {
	node *inode
	// opened is the record of the open, of which that of the close is made.
	opened Operation

	read, written atomic.Int64
	errno         atomic.Uint32
}

// failed notes the first error.
func (o *auditedOpen) failed(status fuse.Status) {
	if o != nil && !status.Ok() {
		o.errno.CompareAndSwap(0, uint32(status))
	}
}

// opened remembers an open that succeeded, and gives it a number if it has none.
func (a *audited) opened(r *auditedRequest, n *inode, flags uint32, out *fuse.OpenOut) {
	r.record.Access, r.record.Truncated = accessOf(flags), flags&syscall.O_TRUNC != 0
	r.record.Passthrough = out.OpenFlags&fuse.FOPEN_PASSTHROUGH != 0
	r.record.Handle = a.opens.add(&auditedOpen{node: n, opened: r.record}, out)
}

// Open implements [fuse.RawFileSystem].
func (a *audited) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, OpenFile)
	if !status.Ok() {
		return status
	}
	n := a.inodes.nodes.get(in.NodeId)
	r.at(n)
	if status = a.filesystem.Open(cancel, in, out); status.Ok() {
		a.opened(&r, n, in.Flags, out)
	} else {
		r.record.Access, r.record.Truncated = accessOf(in.Flags), in.Flags&syscall.O_TRUNC != 0
	}
	return r.done(status)
}

// Create implements [fuse.RawFileSystem].
func (a *audited) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, Create)
	if !status.Ok() {
		return status
	}
	r.record.Path = a.child(in.NodeId, name)
	mode := in.Mode & 0o7777
	r.record.Change = &Change{Mode: &mode}
	if status = a.filesystem.Create(cancel, in, name, out); status.Ok() {
		a.opened(&r, a.inodes.nodes.get(out.NodeId), in.Flags, &out.OpenOut)
	} else {
		r.record.Access = accessOf(in.Flags)
	}
	return r.done(status)
}

// Release implements [fuse.RawFileSystem].
func (a *audited) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	open := a.opens.remove(in.Fh)
	a.filesystem.Release(cancel, in)
	if open != nil {
		a.to.Done(open.closed(time.Now()))
	}
}

// closed returns the record of the close.
func (o *auditedOpen) closed(at time.Time) Operation {
	r := o.opened
	r.Verb, r.Change, r.Truncated = CloseFile, nil, false
	r.Took, r.Began = at.Sub(r.Began), at
	if r.Access != readAccess && o.node != nil {
		r.Object, r.Change = o.node.audited(), o.node.sized()
	}
	r.Read, r.Written, r.Errno = o.read.Load(), o.written.Load(), syscall.Errno(o.errno.Load())
	return r
}

// closeOpens records what was open when the connection to the kernel ended.
func (a *audited) closeOpens() {
	now := time.Now()
	for _, open := range a.opens.removeAll() {
		a.to.Done(open.closed(now))
	}
}

// Read implements [fuse.RawFileSystem].
func (a *audited) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	result, status := a.filesystem.Read(cancel, in, buf)
	if open := a.opens.get(in.Fh); open != nil {
		if status.Ok() {
			open.read.Add(int64(result.Size()))
		}
		open.failed(status)
	}
	return result, status
}

// Write implements [fuse.RawFileSystem].
func (a *audited) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return a.Writev(cancel, in, [][]byte{data})
}

// Writev implements [fuse.RawFileSystem].
func (a *audited) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	n, status := a.filesystem.Writev(cancel, in, data)
	if open := a.opens.get(in.Fh); open != nil {
		open.written.Add(int64(n))
		open.failed(status)
	}
	return n, status
}

// CopyFileRange implements [fuse.RawFileSystem].
func (a *audited) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	n, status := a.filesystem.CopyFileRange(cancel, in)
	if open := a.opens.get(in.FhIn); open != nil {
		open.read.Add(int64(n))
	}
	if open := a.opens.get(in.FhOut); open != nil {
		open.written.Add(int64(n))
		open.failed(status)
	}
	return n, status
}

// Flush implements [fuse.RawFileSystem].
func (a *audited) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	status := a.filesystem.Flush(cancel, in)
	if a.inodes.space != nil {
		a.opens.get(in.Fh).failed(status)
	}
	return status
}

// Fsync implements [fuse.RawFileSystem].
func (a *audited) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	status := a.filesystem.Fsync(cancel, in)
	if a.inodes.space != nil {
		a.opens.get(in.Fh).failed(status)
	}
	return status
}

// Fallocate implements [fuse.RawFileSystem].
func (a *audited) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, Fallocate)
	if !status.Ok() {
		return status
	}
	r.at(a.inodes.nodes.get(in.NodeId))
	size := int64(in.Offset + in.Length)
	r.record.Change = &Change{Size: &size}
	return r.done(a.filesystem.Fallocate(cancel, in))
}

// SetAttr implements [fuse.RawFileSystem].
func (a *audited) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	verb, change := changeOf(in)
	if verb == "" {
		return a.filesystem.SetAttr(cancel, in, out) // part of a write, or chown(-1, -1)
	}
	r, status := a.admit(cancel, &in.Caller, verb)
	if !status.Ok() {
		return status
	}
	r.at(a.inodes.nodes.get(in.NodeId))
	r.record.Change = &change
	return r.done(a.filesystem.SetAttr(cancel, in, out))
}

// changeOf says what a SETATTR asks for, "" for what changes nothing that is recorded.
func changeOf(in *fuse.SetAttrIn) (verb Verb, c Change) {
	if mtime, ok := in.GetMTime(); ok {
		verb, c.Mtime = Utimens, &mtime
	} else if in.Valid&callers.AskedTimes != 0 {
		verb = Utimens
	}
	if in.Valid&fuse.FATTR_MTIME_NOW != 0 {
		c.Mtime = &time.Time{}
	}
	if mode, ok := in.GetMode(); ok {
		mode &= 0o7777
		verb, c.Mode = Chmod, &mode
	}
	if uid, ok := in.GetUID(); ok {
		verb, c.UID = Chown, &uid
	}
	if gid, ok := in.GetGID(); ok {
		verb, c.GID = Chown, &gid
	}
	if size, ok := in.GetSize(); ok {
		bytes := int64(size)
		verb, c.Size = Truncate, &bytes
	}
	return verb, c
}

// SetXAttr implements [fuse.RawFileSystem].
func (a *audited) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, SetXAttr)
	if !status.Ok() {
		return status
	}
	r.at(a.inodes.nodes.get(in.NodeId))
	r.record.Name = name
	return r.done(a.filesystem.SetXAttr(cancel, in, name, value))
}

// RemoveXAttr implements [fuse.RawFileSystem].
func (a *audited) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, RemoveXAttr)
	if !status.Ok() {
		return status
	}
	r.at(a.inodes.nodes.get(in.NodeId))
	r.record.Name = name
	return r.done(a.filesystem.RemoveXAttr(cancel, in, name))
}

// GetAttr implements [fuse.RawFileSystem]. The kernel asks before it refuses what a file's mode
// does not allow.
func (a *audited) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	status := a.filesystem.GetAttr(cancel, in, out)
	if !status.Ok() || in.Flags()&fuse.FUSE_GETATTR_FH != 0 || in.Caller.Uid == 0 {
		return status
	}
	caller := callers.Rights{Caller: &in.Caller}
	attempt, refused := caller.Refused(out.Mode, out.Uid, out.Gid)
	if !refused {
		return status
	}
	r, admitted := a.admit(cancel, &in.Caller, verbs[attempt.Kind])
	if !admitted.Ok() {
		return status // the caller is being killed, and sees no answer
	}
	r.at(a.inodes.nodes.get(in.NodeId))
	r.record.ByKernel = true
	switch attempt.Kind {
	case callers.Open:
		r.record.Access, r.record.Truncated = accessOf(attempt.Flags), attempt.Flags&syscall.O_TRUNC != 0
	case callers.Execute:
		r.record.Access = "execute"
	}
	r.done(fuse.EACCES)
	return status
}

// verbs are the verbs of what the kernel refuses.
var verbs = map[callers.Kind]Verb{
	callers.Open: OpenFile, callers.Execute: OpenFile, callers.Truncate: Truncate, callers.Utimens: Utimens,
	callers.SetXAttr: SetXAttr, callers.RemoveXAttr: RemoveXAttr, callers.Chmod: Chmod, callers.Chown: Chown,
	callers.Unlink: Unlink, callers.Rmdir: Rmdir, callers.Mkdir: Mkdir, callers.Mknod: Mknod, callers.Symlink: Symlink,
	callers.Link: Link, callers.Rename: Rename,
}

// makes records a request that makes a name.
func (a *audited) makes(cancel <-chan struct{}, in *fuse.InHeader, verb Verb, name string, mode *uint32, do func() fuse.Status) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, verb)
	if !status.Ok() {
		return status
	}
	r.record.Path = a.child(in.NodeId, name)
	if mode != nil {
		r.record.Change = &Change{Mode: mode}
	}
	return r.done(do())
}

// Mknod implements [fuse.RawFileSystem].
func (a *audited) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	mode := in.Mode
	return a.makes(cancel, &in.InHeader, Mknod, name, &mode, func() fuse.Status { return a.filesystem.Mknod(cancel, in, name, out) })
}

// Mkdir implements [fuse.RawFileSystem].
func (a *audited) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	mode := in.Mode & 0o7777
	return a.makes(cancel, &in.InHeader, Mkdir, name, &mode, func() fuse.Status { return a.filesystem.Mkdir(cancel, in, name, out) })
}

// Link implements [fuse.RawFileSystem].
func (a *audited) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return a.makes(cancel, &in.InHeader, Link, name, nil, func() fuse.Status { return a.filesystem.Link(cancel, in, name, out) })
}

// Tmpfile implements [fuse.RawFileSystem].
func (a *audited) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return a.makes(cancel, &in.InHeader, Tmpfile, "", nil, func() fuse.Status { return a.filesystem.Tmpfile(cancel, in, out) })
}

// Symlink implements [fuse.RawFileSystem].
func (a *audited) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, Symlink)
	if !status.Ok() {
		return status
	}
	r.record.Path, r.record.Name = a.child(in.NodeId, name), target
	return r.done(a.filesystem.Symlink(cancel, in, target, name, out))
}

// removes records a request that takes a name away.
func (a *audited) removes(cancel <-chan struct{}, in *fuse.InHeader, verb Verb, name string, do func() fuse.Status) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, verb)
	if !status.Ok() {
		return status
	}
	r.record.Path = a.child(in.NodeId, name)
	r.record.Object = a.named(cancel, &in.Caller, in.NodeId, name)
	return r.done(do())
}

// Unlink implements [fuse.RawFileSystem].
func (a *audited) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return a.removes(cancel, in, Unlink, name, func() fuse.Status { return a.filesystem.Unlink(cancel, in, name) })
}

// Rmdir implements [fuse.RawFileSystem].
func (a *audited) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return a.removes(cancel, in, Rmdir, name, func() fuse.Status { return a.filesystem.Rmdir(cancel, in, name) })
}

// Rename implements [fuse.RawFileSystem].
func (a *audited) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	r, status := a.admit(cancel, &in.Caller, Rename)
	if !status.Ok() {
		return status
	}
	r.record.Path, r.record.To = a.child(in.NodeId, oldName), a.child(in.Newdir, newName)
	r.record.Object = a.named(cancel, &in.Caller, in.NodeId, oldName)
	r.record.Replaced = a.named(cancel, &in.Caller, in.Newdir, newName)
	return r.done(a.filesystem.Rename(cancel, in, oldName, newName))
}
