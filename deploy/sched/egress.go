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
// reported last; node is nil if none reads anything.
type busiest struct {
	node   *node
	egress int64
}

// egress is what the mount of n that reads the most reads.
func (n *node) egress() int64 {
	var most int64
	for _, m := range n.report.Mounts {
		most = max(most, m.EgressBytesPerSecond)
	}
	return most
}

// noteEgress takes the report of n into c.busiest. c.mu is held for writing.
func (c *Cluster) noteEgress(n *node) {
	b := c.busiest.Load()
	if b == nil {
		return // whoever asks looks at all
	}
	switch egress := n.egress(); {
	case egress > b.egress:
		c.busiest.Store(&busiest{n, egress})
	case n == b.node && egress < b.egress:
		c.busiest.Store(nil)
	}
}

// mostEgress returns what the busiest mount reads, of those whose reports are not too old
// to tell. c.mu is held.
func (c *Cluster) mostEgress(now time.Time) int64 {
	b := c.busiest.Load()
	if b == nil || b.node != nil && b.node.stale(now) {
		b = &busiest{}
		for _, n := range c.nodes {
			if egress := n.egress(); egress > b.egress && !n.stale(now) {
				b = &busiest{n, egress}
			}
		}
		c.busiest.Store(b) // who asks at the same time finds the same
	}
	return b.egress
}

// spare returns which share of its bandwidth a mount of n does not use to read from the
// object store: of its limit or, where none is known, of what the busiest mount reads;
// one half where the report is too old to tell. c.mu is held.
func (c *Cluster) spare(n *node, m *api.MountStatus, now time.Time) float64 {
	if n.stale(now) {
		return 0.5
	}
	limit := m.EgressLimitBytesPerSecond
	if limit <= 0 {
		limit = max(c.mostEgress(now), littleEgress)
	}
	return max(0, 1-float64(m.EgressBytesPerSecond)/float64(limit))
}

// busy reports whether n had better not fetch the dataset of p as well. c.mu is held.
func (c *Cluster) busy(n *node, p Pod, now time.Time) bool {
	m := n.mount(p.Dataset, p.Mount)
	return m != nil && c.spare(n, m, now) < 1-busyEgress
}
