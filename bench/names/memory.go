package names

import (
	"context"
	"fmt"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// MountMemory mounts the tree at dir out of this process's memory, as the tree of
// nodes that go-fuse is made for, and serves it until it is unmounted or ctx ends.
func (t Tree) MountMemory(ctx context.Context, dir string) error {
	forever := 24 * time.Hour
	server, err := fusefs.Mount(dir, &memoryRoot{tree: t}, &fusefs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{FsName: "names", Name: "names", MaxWrite: 1 << 20, DirectMount: true},
	})
	if err != nil {
		return fmt.Errorf("mount names in memory: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		server.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return server.Unmount()
	}
}

// memoryRoot fills itself with the tree when it is mounted.
type memoryRoot struct {
	fusefs.Inode
	tree Tree
}

var _ = fusefs.NodeOnAdder((*memoryRoot)(nil))

// OnAdd implements [fusefs.NodeOnAdder].
func (r *memoryRoot) OnAdd(ctx context.Context) {
	for d := range r.tree.Dirs {
		dir := &r.Inode
		if name := r.tree.Dir(d); name != "" {
			dir = r.NewPersistentInode(ctx, &fusefs.Inode{}, fusefs.StableAttr{Mode: fuse.S_IFDIR})
			r.AddChild(name, dir, false)
		}
		for i := range r.tree.Files {
			file := &fusefs.MemRegularFile{Attr: fuse.Attr{Mode: 0o644, Size: uint64(Size(i)), Mtime: uint64(born.Unix())}}
			dir.AddChild(File(i), dir.NewPersistentInode(ctx, file, fusefs.StableAttr{Mode: fuse.S_IFREG}), false)
		}
	}
}
