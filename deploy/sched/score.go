package sched

import (
	"cmp"
	"math"
	"time"
)

// MaxScore is the best score.
const MaxScore = 100

// What a score is made of.
const (
	forWarm   = 0.6
	forFree   = 0.2
	forEgress = 0.2
)

// Score says how good a node is for a pod, 0 to MaxScore: how much of the dataset is
// there, how much of the cache no pod of this node is using once the pod is there, and how
// much of what the mount may read from the object store nobody is reading.
func (c *Cluster) Score(p Pod, name string, now time.Time) int64 {
	if p.Dataset == "" {
		return 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.nodes[name]
	if n == nil {
		return 0
	}
	m := n.mount(p.Dataset, p.Mount)
	if m == nil {
		return 0
	}
	size := c.size(p.Dataset, p.Bytes)
	free := 0.0
	if bytes, capacity := c.free(n, size, p.Dataset); capacity > 0 {
		free = max(0, min(1, float64(bytes)/float64(capacity)))
	}
	return int64(math.Round(MaxScore * (forWarm*n.share(p.Dataset, size, now) + forFree*free + forEgress*c.spare(n, m, now))))
}

// share returns which share of a dataset of a size is on n, by a report that can be
// believed. size is used where n does not know the dataset's own.
func (n *node) share(dataset string, size int64, now time.Time) float64 {
	d, ok := n.dataset(dataset, now)
	if !ok {
		return 0
	}
	d.BytesTotal = cmp.Or(d.BytesTotal, size)
	return d.Fraction()
}
