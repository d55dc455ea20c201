package sched

import (
	"sync"
	"time"
)

// State is how far a member of a gang has come.
type State int

// The states.
const (
	// Waiting: it exists and has no node.
	Waiting State = iota
	// Reserved: a node is kept for it while the others are placed.
	Reserved
	// Placed: it is bound to a node.
	Placed
)

// Gangs keeps pods together: all of a gang are placed or none.
//
// A gang is begun only when there is room for all of it, and one gang is placed at a
// time: it has the floor until all its pods have a node, or one of them finds none, or
// its time is up, and then every node that was kept for it is given back. So two gangs
// never hold half of what both need. Methods may be called from several goroutines.
type Gangs struct {
	cluster *Cluster
	// limit is how long the floor may be held.
	limit time.Duration

	mu    sync.Mutex
	gangs map[string]*gang
	floor string
	until time.Time
}

// gang is what is known of one.
type gang struct {
	members map[string]State
	// turned says that pods were refused because of the floor.
	turned bool
	// announced says that See has told that all size pods exist.
	announced bool
	size      int
}

// NewGangs returns no gangs, with room as the cluster knows it.
func NewGangs(c *Cluster, limit time.Duration) *Gangs {
	return &Gangs{cluster: c, limit: limit, gangs: map[string]*gang{}}
}

// Limit is how long a pod may wait for the rest of its gang.
func (g *Gangs) Limit() time.Duration { return g.limit }

// See records that a pod of a gang exists, and where it has come to. It reports whether
// the gang has just become complete: its other pods may be tried again.
func (g *Gangs) See(p Pod, s State) (complete bool) {
	if p.Gang == "" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.of(p.Gang)
	if of.members[p.Key] != Reserved || s != Waiting { // else the news is older than what was decided
		of.members[p.Key] = s
		g.settle(p)
	}
	of.size = p.GangSize
	if of.announced || len(of.members) < of.size {
		return false
	}
	of.announced = true
	return true
}

// Lose records that a pod has ended, or is being deleted.
func (g *Gangs) Lose(p Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if of := g.gangs[p.Gang]; of != nil {
		delete(of.members, p.Key)
		of.announced = of.announced && len(of.members) >= of.size
		if len(of.members) == 0 {
			g.yield(p.Gang)
			delete(g.gangs, p.Gang)
		}
	}
}

// of returns a gang's record, made if need be. g.mu is held.
func (g *Gangs) of(name string) *gang {
	if g.gangs[name] == nil {
		g.gangs[name] = &gang{members: map[string]State{}}
	}
	return g.gangs[name]
}

// Exists refuses a pod whose gang's other pods do not exist yet.
func (g *Gangs) Exists(p Pod) *Refusal {
	if p.Gang == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.of(p.Gang)
	if _, known := of.members[p.Key]; !known {
		of.members[p.Key] = Waiting
	}
	for _, s := range of.members {
		if s == Placed {
			return nil
		}
	}
	if have := len(of.members); have < p.GangSize {
		return refuse(GangPartial, "gang %s has %d of %d pods: it waits for the others; make as many, or lower the annotation %s", p.Gang, have, p.GangSize, AnnotationGangSize)
	}
	return nil
}

// Need returns how many pods of p's gang have no node yet, p among them, and 1 for a
// pod without a gang.
func (g *Gangs) Need(p Pod) int {
	if p.Gang == "" {
		return 1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.need(p)
}

// need is Need with g.mu held.
func (g *Gangs) need(p Pod) int {
	of := g.of(p.Gang)
	n := of.missing(p.GangSize)
	if s, known := of.members[p.Key]; known && s != Waiting {
		n++
	}
	return max(1, n)
}

// missing returns how many pods of a gang have no node. Once one of them has run the
// others are those that there are: a job does not replace pods that have ended well, and which
// have is not to be seen.
func (of *gang) missing(size int) int {
	count := map[State]int{}
	for _, s := range of.members {
		count[s]++
	}
	if count[Placed] > 0 {
		return count[Waiting]
	}
	return size - count[Reserved]
}

// Admit lets a pod be placed if its gang may be: there is room for all that is left of
// it, and no other gang has the floor. The gang has it from then on. A refused gang that had
// the floor has lost it: call Abort for its other pods.
func (g *Gangs) Admit(p Pod, a Ask) *Refusal {
	if p.Gang == "" {
		return nil
	}
	g.mu.Lock()
	of, need, floor := g.of(p.Gang), g.need(p), g.floor
	if floor != "" && floor != p.Gang && a.Now.Before(g.until) {
		of.turned = true
		g.mu.Unlock()
		return refuse(GangWaits, "gang %s waits while gang %s is being placed, at most %s", p.Gang, floor, g.limit)
	}
	g.mu.Unlock()
	// What claims need is not known here: their gang is tried, and given up in time.
	a.Need = need
	if !p.Claims {
		if room := g.cluster.Room(p, a); room < need {
			return g.cluster.crowded(p, need, room)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.floor != p.Gang {
		g.floor, g.until = p.Gang, a.Now.Add(g.limit)
	}
	return nil
}

// Reserve records that a node is kept for a pod. It reports whether that was the last
// that was missing: the pods of the gang may go to their nodes, and those of other gangs may
// be tried again.
func (g *Gangs) Reserve(p Pod) (whole bool) {
	if p.Gang == "" {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(p.Gang).members[p.Key] = Reserved
	return g.settle(p)
}

// settle yields the floor if all of p's gang has nodes. g.mu is held.
func (g *Gangs) settle(p Pod) (whole bool) {
	if g.of(p.Gang).missing(p.GangSize) > 0 {
		return false
	}
	g.yield(p.Gang)
	return true
}

// Abort records that a pod of a gang finds no node. The nodes that are kept for the
// others are to be given back: their keys are returned.
func (g *Gangs) Abort(p Pod) (others []string) {
	if p.Gang == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.of(p.Gang)
	for key, s := range of.members {
		if s != Reserved {
			continue
		}
		of.members[key] = Waiting
		if key != p.Key {
			others = append(others, key)
		}
	}
	g.yield(p.Gang)
	return others
}

// yield gives up the floor if a gang has it. g.mu is held.
func (g *Gangs) yield(gang string) {
	if g.floor == gang {
		g.floor = ""
	}
}

// Turned returns the waiting pods that were refused because of the floor, if it is
// free now; each once.
func (g *Gangs) Turned(now time.Time) (pods []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.floor != "" && now.Before(g.until) {
		return nil
	}
	for _, of := range g.gangs {
		if !of.turned {
			continue
		}
		of.turned = false
		for key, s := range of.members {
			if s == Waiting {
				pods = append(pods, key)
			}
		}
	}
	return pods
}
