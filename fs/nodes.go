package fs

import (
	"sync"
	"sync/atomic"
)

const nodeShards = 64

// nodeTable holds every inode that the kernel has a reference to. A node enters
// with the first answer that names it and leaves when the kernel has forgotten
// as many references as it was given.
type nodeTable struct {
	count atomic.Int64
	// entered counts the inodes that ever entered.
	entered atomic.Uint64
	shards  [nodeShards]struct {
		mu struct {
			sync.Mutex
			nodes map[uint64]*inode
		}
	}
}

func newNodeTable(root *inode) *nodeTable {
	t := &nodeTable{}
	for i := range t.shards {
		t.shards[i].mu.nodes = make(map[uint64]*inode)
	}
	t.shards[rootID%nodeShards].mu.nodes[rootID] = root
	t.count.Store(1)
	return t
}

// get returns the inode with id, or nil.
func (t *nodeTable) get(id uint64) *inode {
	s := &t.shards[id%nodeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nodes[id]
}

// find returns the inode with the identity of want, or nil. Another one that had its name
// may have its id still, which acquire has then stepped over.
func (t *nodeTable) find(want *inode) *inode {
	for id := want.id; ; id = nextNumber(id) {
		if n := t.get(id); n == nil || n.same(want) {
			return n
		}
	}
}

// acquire returns the inode with the identity of want, which is want if there
// was none, and counts one reference of the kernel's. An id that another identity
// has already, which takes some 2³² inodes to expect, is stepped over.
func (t *nodeTable) acquire(want *inode) *inode {
	for id := want.id; ; id = nextNumber(id) {
		if n := t.acquireAt(id, want); n != nil {
			return n
		}
	}
}

func (t *nodeTable) acquireAt(id uint64, want *inode) *inode {
	s := &t.shards[id%nodeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.mu.nodes[id]
	switch {
	case !ok:
		n = want
		n.id, n.met = id, t.entered.Add(1)
		s.mu.nodes[id] = n
		t.count.Add(1)
	case !n.same(want):
		return nil
	default:
		if a := want.attr.Load(); !a.Equal(n.attr.Load()) {
			n.attr.Store(a) // of a later generation
		}
	}
	n.lookups++
	return n
}

// again counts one more reference to n, unless it has left the table.
func (t *nodeTable) again(n *inode) bool {
	s := &t.shards[n.id%nodeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.nodes[n.id] != n {
		return false
	}
	n.lookups++
	return true
}

// forget takes back references and returns the inode if it has left the table.
func (t *nodeTable) forget(id, references uint64) *inode {
	if id == rootID {
		return nil
	}
	s := &t.shards[id%nodeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.mu.nodes[id]
	if !ok {
		return nil
	}
	if references < n.lookups {
		n.lookups -= references
		return nil
	}
	delete(s.mu.nodes, id)
	t.count.Add(-1)
	return n
}

// all returns the inodes known now.
func (t *nodeTable) all() []*inode {
	var all []*inode
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, n := range s.mu.nodes {
			all = append(all, n)
		}
		s.mu.Unlock()
	}
	return all
}
