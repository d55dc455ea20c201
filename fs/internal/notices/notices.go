package notices

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// notesMost bounds the notifications that wait. One that is dropped costs the
// time until the kernel's own answer expires, nothing else.
const notesMost = 1024

// note is something that the kernel should forget: a name in a directory or, if
// name is empty, what it has cached of the content of a file or directory.
type note struct {
	node uint64
	name string
}

// Notifier tells the kernel what to forget, from a goroutine of its own. The
// kernel takes the directory's lock for it, which it also holds over a LOOKUP in
// that directory: a handler that notified would wait for itself.
type Notifier struct {
	server *fuse.Server
	notes  chan note
	// Started is closed when the kernel can be told.
	Started chan struct{}
}

// New returns a notifier that takes notes from now on, and delivers them when it was started.
func New() Notifier {
	return Notifier{notes: make(chan note, notesMost), Started: make(chan struct{})}
}

// Start says that the kernel has accepted the mount.
func (n *Notifier) Start(server *fuse.Server) {
	n.server = server
	close(n.Started)
}

// Entry makes the kernel look name in directory dir up again. It reports whether
// the note was taken.
func (n *Notifier) Entry(dir uint64, name string) bool { return n.put(note{dir, name}) }

// Content makes the kernel read a file or directory again.
func (n *Notifier) Content(node uint64) bool { return n.put(note{node: node}) }

// EntryNow is Entry for a goroutine that may wait for a directory's lock: one that
// answers no request.
func (n *Notifier) EntryNow(dir uint64, name string) { n.deliver(note{dir, name}) }

// ContentNow is Content for such a goroutine.
func (n *Notifier) ContentNow(node uint64) { n.deliver(note{node: node}) }

// Attributes makes the kernel ask for the attributes of a node again, and take no answer
// that is on its way. Unlike the others it takes no lock of the kernel's that a request
// holds, and may be called from one.
func (n *Notifier) Attributes(node uint64) {
	select {
	case <-n.Started:
		_ = n.server.InodeNotify(node, -1, 0) // it does not know the node, which is as good
	default:
	}
}

// deliver tells the kernel. An error says that it does not know the node or the
// name, or not any more, which is as good.
func (n *Notifier) deliver(v note) {
	if v.name == "" {
		_ = n.server.InodeNotify(v.node, 0, 0)
	} else {
		_ = n.server.EntryNotify(v.node, v.name)
	}
}

func (n *Notifier) put(v note) bool {
	select {
	case n.notes <- v:
		return true
	default:
		return false
	}
}

// Run delivers notes until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-n.notes:
			n.deliver(v)
		}
	}
}
