package sched

import (
	"cmp"
	"slices"
	"time"
)

// Ask is what Choose and Room need to know beside the pod.
type Ask struct {
	Now time.Time
	// Need is how many pods like this one are still to be placed: 1 without a gang.
	Need int
	// Since is when the pod was first held to some of the nodes and did not get in;
	// zero if it was not. Attempts is how often.
	Since    time.Time
	Attempts int
	// Room says how many pods like this one a node takes at this moment by everything that
	// the caller knows: free resources, selectors, taints.
	Room func(node string) int
}

// Choice is the nodes among which a pod is placed.
type Choice struct {
	// Nodes are those to look at; nil stands for all.
	Nodes []string
	// Kind says why these.
	Kind Kind
}

// Kind is why nodes were chosen.
type Kind string

// The kinds.
const (
	Left    Kind = "left"    // the pod reads no dataset
	Warm    Kind = "warm"    // they have the dataset, and room
	Partial Kind = "partial" // too few have it: some that have a part, or nothing, are among them
	Cold    Kind = "cold"    // none has it
	Any     Kind = "any"     // the pod has waited long enough: whatever is healthy
	Full    Kind = "full"    // nothing has room
)

const (
	// maxNames is how many nodes are named: below 100 a scheduler looks at each.
	maxNames = 64
	// maxListed is up to how many nodes are named where all that suit are meant.
	maxListed = 1024
	// widen is by how much more cold nodes are named after an attempt in vain: something kept
	// the pod from those named that Room does not know.
	widen = 8
)

// Choose returns the nodes among which a pod should be placed. A stock scheduler of
// 10,000 nodes looks at 500; the few that are warm are found only if they are named.
func (c *Cluster) Choose(p Pod, a Ask) (Choice, *Refusal) {
	if refusal := c.tooLarge(p); refusal != nil {
		return Choice{}, refusal
	}
	if p.Dataset == "" {
		return Choice{Kind: Left}, nil
	}
	suit := c.suit(p)
	if len(suit) == 0 {
		return Choice{}, c.nowhere(p)
	}
	if !a.Since.IsZero() && a.Now.Sub(a.Since) >= c.config.StarveAfter {
		return Choice{Nodes: c.listed(suit), Kind: Any}, nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	need := max(1, a.Need)
	limit := max(maxNames, 2*need)
	var names []string
	room := 0
	// take names the nodes of a ranking until enough says so.
	take := func(r ranking, enough func() bool) {
		for n := range r.best {
			if len(names) >= limit || enough() {
				return
			}
			if free := a.Room(n.Name); free > 0 && n.check(p.reader(), a.Now) == "" {
				names = append(names, n.Name)
				room += min(free, need)
			}
		}
	}
	key := hashOf(p.Dataset + "#" + p.Shard)
	size := c.size(p.Dataset, p.Bytes)
	var warm, partial ranking
	with := c.datasets[p.Dataset]
	for n := range with {
		if n.suits(p.reader()) != "" {
			continue
		}
		d, _ := n.dataset(p.Dataset, a.Now)
		d.BytesTotal = cmp.Or(d.BytesTotal, size)
		switch share := d.Fraction(); {
		case share >= warmShare:
			warm = append(warm, ranked{n, share, weight(key, n.hash)})
		case d.BytesWarm > 0:
			partial = append(partial, ranked{n, float64(d.BytesWarm), weight(key, n.hash)})
		}
	}
	take(warm, func() bool { return false })
	if room >= need {
		return Choice{Nodes: names, Kind: Warm}, nil
	}
	take(partial, func() bool { return room >= need })
	kind := Partial
	if room < need {
		if len(names) == 0 {
			kind = Cold
		}
		spares := 0
		for range min(a.Attempts, 3) {
			spares = max(1, spares) * widen
		}
		before := len(names)
		take(c.cold(p, suit, names, key, size, a.Now), func() bool { return room >= need && len(names)-before > spares })
	}
	if len(names) == 0 {
		return Choice{Nodes: c.listed(suit), Kind: Full}, nil
	}
	return Choice{Nodes: names, Kind: kind}, nil
}

// Room returns how many pods like p fit at this moment, counted up to a.Need.
func (c *Cluster) Room(p Pod, a Ask) int {
	suit := c.suit(p)
	c.mu.RLock()
	defer c.mu.RUnlock()
	room := 0
	for _, n := range suit {
		if room >= a.Need {
			break
		}
		if p.Dataset == "" || n.check(p.reader(), a.Now) == "" {
			room += min(a.Room(n.Name), a.Need)
		}
	}
	return room
}

// suit returns the nodes that suit p: every node, if it reads no dataset. The answer
// is not to be changed.
func (c *Cluster) suit(p Pod) []*node {
	r := p.reader()
	if p.Dataset == "" {
		r = reader{}
	}
	c.mu.RLock()
	nodes, ok := c.suitable[r]
	c.mu.RUnlock()
	if ok {
		return nodes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.present && (p.Dataset == "" || n.suits(r) == "") {
			nodes = append(nodes, n)
		}
	}
	if len(c.suitable) >= maxSuitable {
		clear(c.suitable)
	}
	c.suitable[r] = nodes
	return nodes
}

// cold ranks the nodes that suit and are not named yet: those whose cache has room
// for the whole dataset first, among them those that are not busy. c.mu is held.
func (c *Cluster) cold(p Pod, suit []*node, named []string, key uint64, size int64, now time.Time) ranking {
	r := make(ranking, 0, len(suit))
	for _, n := range suit {
		if len(named) > 0 && slices.Contains(named, n.Name) {
			continue
		}
		rank := 0.0
		if free, _ := c.free(n, 0, ""); free >= size {
			rank = 2
		}
		if !c.busy(n, p, now) {
			rank++
		}
		r = append(r, ranked{n, rank, weight(key, n.hash)})
	}
	return r
}

// listed returns the names of nodes, and nil for more than are worth a list.
func (c *Cluster) listed(nodes []*node) []string {
	if len(nodes) > maxListed {
		return nil
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}
