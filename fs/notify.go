package fs

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

// notifier tells the kernel what to forget, from a goroutine of its own. The
// kernel takes the directory's lock for it, which it also holds over a LOOKUP in
// that directory: a handler that notified would wait for itself.
type notifier struct {
	server *fuse.Server
	notes  chan note
	// started is closed when the kernel can be told.
	started chan struct{}
}

func newNotifier() notifier {
	return notifier{notes: make(chan note, notesMost), started: make(chan struct{})}
}

func (n *notifier) start(server *fuse.Server) {
	n.server = server
	close(n.started)
}

// entry makes the kernel look name in directory dir up again. It reports whether
// the note was taken.
func (n *notifier) entry(dir uint64, name string) bool { return n.put(note{dir, name}) }

// content makes the kernel read a file or directory again.
func (n *notifier) content(node uint64) bool { return n.put(note{node: node}) }

// entryNow is entry for a goroutine that may wait for a directory's lock: one that
// answers no request.
func (n *notifier) entryNow(dir uint64, name string) { n.deliver(note{dir, name}) }

// contentNow is content for such a goroutine.
func (n *notifier) contentNow(node uint64) { n.deliver(note{node: node}) }

// attributes makes the kernel ask for the attributes of a node again, and take no answer
// that is on its way. Unlike the others it takes no lock of the kernel's that a request
// holds, and may be called from one.
func (n *notifier) attributes(node uint64) {
	select {
	case <-n.started:
		_ = n.server.InodeNotify(node, -1, 0) // it does not know the node, which is as good
	default:
	}
}

// deliver tells the kernel. An error says that it does not know the node or the
// name, or not any more, which is as good.
func (n *notifier) deliver(v note) {
	if v.name == "" {
		_ = n.server.InodeNotify(v.node, 0, 0)
	} else {
		_ = n.server.EntryNotify(v.node, v.name)
	}
}

func (n *notifier) put(v note) bool {
	select {
	case n.notes <- v:
		return true
	default:
		return false
	}
}

// run delivers notes until ctx ends.
func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-n.notes:
			n.deliver(v)
		}
	}
}
