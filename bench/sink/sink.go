package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// forever is for how long the kernel may believe what it is told.
const forever = 24 * time.Hour

// sink is the file system. A node is a directory, or a file that was made.
type sink struct {
	fuse.RawFileSystem

	server *fuse.Server
	// stage is the directory of the staged files, "" if nothing is kept; record is
	// where their bytes are written at the close, at the offset recorded.
	stage    string
	record   *os.File
	recorded atomic.Int64
	buffers  sync.Pool

	mu struct {
		sync.Mutex
		next  uint64
		nodes map[uint64]*node
	}
}

// node is a directory if it has names.
type node struct {
	names map[string]uint64
	// staged is the staged file, backing the kernel's number for it.
	staged  *os.File
	backing int32
}

// Serve mounts the file system at dir and serves it until it is unmounted or ctx ends.
// stage is the directory for staged files, which is made; "" keeps nothing.
func Serve(ctx context.Context, dir, stage string) (err error) {
	s := &sink{RawFileSystem: fuse.NewDefaultRawFileSystem(), stage: stage}
	s.mu.next = fuse.FUSE_ROOT_ID
	s.mu.nodes = map[uint64]*node{fuse.FUSE_ROOT_ID: {names: map[string]uint64{}}}
	if stage != "" {
		if err := os.MkdirAll(stage, 0o700); err != nil {
			return fmt.Errorf("mount sink: %w", err)
		}
		if s.record, err = os.Create(filepath.Join(stage, "record")); err != nil {
			return fmt.Errorf("mount sink: %w", err)
		}
		defer func() { err = errors.Join(err, s.record.Close()) }()
	}
	server, err := fuse.NewServer(s, dir, &fuse.MountOptions{
		FsName: "sink", Name: "sink", MaxWrite: 1 << 20, DirectMount: true, DisableSplice: true,
		Options:           []string{"default_permissions"},
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2,
	})
	if err != nil {
		return fmt.Errorf("mount sink: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		server.Serve()
		close(ended)
	}()
	if err := server.WaitMount(); err != nil {
		return errors.Join(fmt.Errorf("mount sink: %w", err), server.Unmount())
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return server.Unmount()
	}
}

// Init implements [fuse.RawFileSystem].
func (s *sink) Init(server *fuse.Server) { s.server = server }

// get returns the node with a number.
func (s *sink) get(id uint64) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nodes[id]
}

// add gives n a name, and its number.
func (s *sink) add(parent uint64, name string, n *node, out *fuse.EntryOut) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.next++
	id := s.mu.next
	s.mu.nodes[id], s.mu.nodes[parent].names[name] = n, id
	answer(id, n, out)
	return id
}

func answer(id uint64, n *node, out *fuse.EntryOut) {
	out.NodeId = id
	attributes(id, n, &out.Attr)
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
}

func attributes(id uint64, n *node, out *fuse.Attr) {
	*out = fuse.Attr{Ino: id, Nlink: 1, Mode: fuse.S_IFREG | 0o644}
	if n.names != nil {
		out.Mode = fuse.S_IFDIR | 0o755
	}
}

// Lookup implements [fuse.RawFileSystem].
func (s *sink) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.mu.nodes[in.NodeId].names[name]
	if !ok {
		return fuse.ENOENT
	}
	answer(id, s.mu.nodes[id], out)
	return fuse.OK
}

// GetAttr implements [fuse.RawFileSystem].
func (s *sink) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	attributes(in.NodeId, s.get(in.NodeId), &out.Attr)
	out.SetTimeout(forever)
	return fuse.OK
}

// GetXAttr implements [fuse.RawFileSystem]: there are none, but the kernel goes on to ask
// before the first write to each file.
func (s *sink) GetXAttr(<-chan struct{}, *fuse.InHeader, string, []byte) (uint32, fuse.Status) {
	return 0, fuse.ENODATA
}

// Mkdir implements [fuse.RawFileSystem].
func (s *sink) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.add(in.NodeId, name, &node{names: map[string]uint64{}}, out)
	return fuse.OK
}

// Create implements [fuse.RawFileSystem].
func (s *sink) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	n := &node{}
	id := s.add(in.NodeId, name, n, &out.EntryOut)
	if s.stage == "" {
		return fuse.OK
	}
	path := filepath.Join(s.stage, strconv.FormatUint(id, 10))
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fuse.ToStatus(err)
	}
	n.staged = os.NewFile(uintptr(fd), path)
	var errno syscall.Errno
	if n.backing, errno = s.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)}); errno != 0 {
		return fuse.Status(errno)
	}
	out.OpenFlags, out.BackingID = fuse.FOPEN_PASSTHROUGH, n.backing
	return fuse.OK
}

// Write implements [fuse.RawFileSystem].
func (s *sink) Write(_ <-chan struct{}, _ *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return uint32(len(data)), fuse.OK
}

// Flush implements [fuse.RawFileSystem].
func (s *sink) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	n := s.get(in.NodeId)
	if n.staged == nil {
		return fuse.OK
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(n.staged.Fd()), &info); err != nil {
		return fuse.ToStatus(err)
	}
	p, ok := s.buffers.Get().(*[]byte)
	if !ok || int64(cap(*p)) < info.Size {
		p = new([]byte)
		*p = make([]byte, info.Size)
	}
	defer s.buffers.Put(p)
	got, err := n.staged.ReadAt((*p)[:info.Size], 0)
	if err != nil || int64(got) != info.Size {
		return fuse.EIO
	}
	if _, err := s.record.WriteAt((*p)[:got], s.recorded.Add(int64(got))-int64(got)); err != nil {
		return fuse.ToStatus(err)
	}
	return fuse.OK
}

// Release implements [fuse.RawFileSystem].
func (s *sink) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	n := s.get(in.NodeId)
	if n.staged == nil {
		return
	}
	_ = s.server.UnregisterBackingFd(n.backing) // it has no other
	_ = n.staged.Close()                        // it was only read
	n.staged = nil
}
