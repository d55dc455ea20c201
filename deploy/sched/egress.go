package sched

import (
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

const (
	// littleEgress is how many bytes a second are nothing to speak of, where no limit is
	// known: about one gigabit.
	littleEgress = 125_000_000
	// busyEgress is from which share of the bandwidth on a node gets cold data only when the
	// others have no room.
	busyEgress = 0.8
)

// busiest is the node whose mounts read the most from the object store, by what was
// reported last.
type busiest struct {
	node   *node
	egress int64
}

// noteEgress takes the report of n into c.busiest. c.mu is held.
func (c *Cluster) noteEgress(n *node) {
	var egress int64
	for _, m := range n.report.Mounts {
		egress = max(egress, m.EgressBytesPerSecond)
	}
	switch {
	case egress > c.busiest.egress:
		c.busiest = busiest{n, egress}
	case n == c.busiest.node && egress < c.busiest.egress:
		c.busiest = busiest{}
		for _, other := range c.nodes {
			for _, m := range other.report.Mounts {
				if m.EgressBytesPerSecond > c.busiest.egress {
					c.busiest = busiest{other, m.EgressBytesPerSecond}
				}
			}
		}
	}
}

// spare returns which share of its bandwidth a mount of n does not use to read from the
// object store: of its limit or, where none is known, of what the busiest mount reads;
// one half where the report is too old to tell. c.mu is held.
func (c *Cluster) spare(n *node, m *api.MountStatus, now time.Time) float64 {
	if now.Sub(n.report.ObservedAt).Abs() > reportAge {
		return 0.5
	}
	limit := m.EgressLimitBytesPerSecond
	if limit <= 0 {
		limit = max(c.busiest.egress, littleEgress)
	}
	return max(0, 1-float64(m.EgressBytesPerSecond)/float64(limit))
}

// busy reports whether n had better not fetch the dataset of p as well. c.mu is held.
func (c *Cluster) busy(n *node, p Pod, now time.Time) bool {
	m := n.mount(p.Dataset, p.Mount)
	return m != nil && c.spare(n, m, now) < 1-busyEgress
}
