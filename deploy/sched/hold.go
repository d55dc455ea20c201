package sched

import "cmp"

// hold is a pod's promise: that it reads this dataset there.
type hold struct{ node, dataset string }

// claim is what pods of one node read of one dataset.
type claim struct {
	pods map[string]struct{}
	// declared is the size that a pod's annotation gave, the largest.
	declared int64
}

// Hold records that a pod runs, or is about to run, on a node, so that the bytes that
// it fills there are not promised to another. Holding again moves it.
func (c *Cluster) Hold(p Pod, name string) {
	if p.Dataset == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := hold{node: name, dataset: p.Dataset}
	if was, ok := c.holds[p.Key]; ok {
		if was == h {
			return
		}
		c.drop(p.Key)
	}
	c.holds[p.Key] = h
	n := c.node(name)
	if n.held[p.Dataset] == nil {
		n.held[p.Dataset] = &claim{pods: map[string]struct{}{}}
	}
	n.held[p.Dataset].pods[p.Key] = struct{}{}
	n.held[p.Dataset].declared = max(n.held[p.Dataset].declared, p.Bytes)
}

// Drop forgets a pod that Hold recorded: it has ended, or was not placed after all.
// Dropping twice is nothing.
func (c *Cluster) Drop(pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(pod)
}

// drop is Drop with c.mu held.
func (c *Cluster) drop(pod string) {
	h, ok := c.holds[pod]
	if !ok {
		return
	}
	delete(c.holds, pod)
	n := c.nodes[h.node]
	delete(n.held[h.dataset].pods, pod)
	if len(n.held[h.dataset].pods) == 0 {
		delete(n.held, h.dataset)
	}
	c.forget(n)
}

// Held returns how many bytes of a node's caches are promised: whole datasets, each
// once however many pods read it.
func (c *Cluster) Held(name string) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := c.nodes[name]; n != nil {
		return c.held(n)
	}
	return 0
}

// held is Held with c.mu held.
func (c *Cluster) held(n *node) int64 {
	var bytes int64
	for dataset, claim := range n.held {
		bytes += c.size(dataset, claim.declared)
	}
	return bytes
}

// free returns how many bytes of n's caches would be promised to nobody if a dataset
// of this size were held there as well, and the caches' capacity. What loaders hold
// counts as promised; what is only cached does not, for it makes way. c.mu is held.
func (c *Cluster) free(n *node, size int64, dataset string) (bytes, capacity int64) {
	var pinned, dirty int64
	for _, m := range n.report.Mounts {
		capacity += m.CapacityBytes
		pinned += m.ReservedBytes
		dirty += m.DirtyBytes
	}
	promised := c.held(n)
	if n.held[dataset] == nil {
		promised += size
	}
	return capacity - dirty - max(promised, pinned), capacity
}

// size returns how large a dataset is, as a node reported it last or as a pod declared
// it. c.mu is held.
func (c *Cluster) size(dataset string, declared int64) int64 {
	return cmp.Or(c.totals[dataset], declared)
}
