package sched

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// How old what a node says may be, and from which share on it counts as warm.
const (
	// reportAge is the contract's: see api.NodeCacheStatus.ObservedAt.
	reportAge = 70 * time.Second
	// conditionAge is three times the agents' heartbeat. The controller notices a silent agent
	// much earlier; this holds when the controller is gone as well.
	conditionAge = 15 * time.Minute
	warmShare    = api.WarmLeave
)

// Config is how a cluster is judged. Its zero value is the default.
type Config struct {
	// StarveAfter is how long a pod may be held to the nodes that suit its dataset
	// before every healthy node will do; 30 s if 0.
	StarveAfter time.Duration
}

// Condition is a condition of a Node. Its zero value is that of a node without an agent.
type Condition struct {
	// Status is True, False or Unknown, or empty where the condition is absent.
	Status          string
	Reason, Message string
	Heartbeat       time.Time
}

// Node is what is known of a node from its Node object.
type Node struct {
	Name                   string
	MountReady, GPUHealthy Condition
	// Capacity is what the node can give when it is empty.
	Capacity Resources
}

// Cluster is what is known of all nodes. Its methods may be called from several
// goroutines.
type Cluster struct {
	config Config

	mu       sync.RWMutex
	nodes    map[string]*node
	datasets map[string]map[*node]struct{} // nodes that report a dataset
	totals   map[string]int64              // sizes of datasets, as reported last
	holds    map[string]hold               // by pod
	suitable map[reader][]*node            // cached answers, dropped when a node changes in what matters
	largest  Resources                     // the most that one node has; nil: not known
	busiest  atomic.Pointer[busiest]       // nil: not known
}

// node is one node. present says that there is a Node object, reported that there is
// a PailfsNodeCache.
type node struct {
	Node
	present, reported bool
	report            api.NodeCacheStatus
	sources           []string // of report.Mounts, normalized
	hash              uint64
	held              map[string]*claim
}

// reader is what decides which nodes suit a pod.
type reader struct {
	dataset, mount string
	gpus           bool
}

// maxSuitable bounds the cached answers.
const maxSuitable = 512

// New returns a cluster without nodes.
func New(c Config) *Cluster {
	if c.StarveAfter == 0 {
		c.StarveAfter = 30 * time.Second
	}
	return &Cluster{
		config: c, nodes: map[string]*node{}, datasets: map[string]map[*node]struct{}{}, totals: map[string]int64{}, holds: map[string]hold{}, suitable: map[reader][]*node{},
	}
}

// node returns the record of a name, made if need be. c.mu is held.
func (c *Cluster) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{Node: Node{Name: name}, hash: hashOf(name), held: map[string]*claim{}}
		c.nodes[name] = n
	}
	return n
}

// forget drops a record of which nothing is left. c.mu is held.
func (c *Cluster) forget(n *node) {
	if !n.present && !n.reported && len(n.held) == 0 {
		delete(c.nodes, n.Name)
	}
}

// SetNode takes what a Node object says. It reports whether something changed that may
// let a waiting pod in.
func (c *Cluster) SetNode(is Node) (better bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.node(is.Name)
	was := n.Node
	if n.present && maps.Equal(was.Capacity, is.Capacity) {
		is.Capacity = was.Capacity
	} else {
		c.largest = nil
	}
	if !n.present || was.MountReady.Status != is.MountReady.Status || was.GPUHealthy.Status != is.GPUHealthy.Status ||
		was.GPUHealthy.Reason != is.GPUHealthy.Reason {
		clear(c.suitable)
		better = is.MountReady.Status == "True"
	}
	n.Node, n.present = is, true
	return better
}

// RemoveNode forgets a Node object.
func (c *Cluster) RemoveNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[name]; n != nil {
		n.present, c.largest = false, nil
		n.Node = Node{Name: name}
		clear(c.suitable)
		c.forget(n)
	}
}

// SetReport takes the status of a node's PailfsNodeCache. It reports whether something
// changed that may let a waiting pod in.
func (c *Cluster) SetReport(name string, report api.NodeCacheStatus) (better bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.node(name)
	same := n.reported && slices.EqualFunc(n.report.Mounts, report.Mounts, func(a, b api.MountStatus) bool {
		return a.Name == b.Name && a.Source == b.Source && a.Ready == b.Ready
	})
	c.unlist(n)
	n.report, n.reported = report, true
	c.noteEgress(n)
	for _, d := range report.Datasets {
		if c.datasets[d.Name] == nil {
			c.datasets[d.Name] = map[*node]struct{}{}
		}
		c.datasets[d.Name][n] = struct{}{}
		if d.BytesTotal > 0 {
			c.totals[d.Name] = d.BytesTotal
		}
	}
	if same {
		return false
	}
	n.sources = n.sources[:0:0]
	for _, m := range report.Mounts {
		source, err := api.NormalizeDataset(m.Source)
		if err != nil {
			source = "" // shows nothing
		}
		n.sources = append(n.sources, source)
	}
	clear(c.suitable)
	return true
}

// RemoveReport forgets a PailfsNodeCache.
func (c *Cluster) RemoveReport(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[name]; n != nil {
		c.unlist(n)
		n.report, n.reported, n.sources = api.NodeCacheStatus{}, false, nil
		c.noteEgress(n)
		clear(c.suitable)
		c.forget(n)
	}
}

// unlist takes n out of the index of datasets. c.mu is held.
func (c *Cluster) unlist(n *node) {
	for _, d := range n.report.Datasets {
		delete(c.datasets[d.Name], n)
		if len(c.datasets[d.Name]) == 0 {
			delete(c.datasets, d.Name)
			delete(c.totals, d.Name)
		}
	}
}

// stale reports whether the node's report is too old, or of a clock that is as wrong.
func (n *node) stale(now time.Time) bool { return now.Sub(n.report.ObservedAt).Abs() > reportAge }

// dataset returns what the node reports of a dataset, and nothing if the report is too
// old, or of a clock that is as wrong.
func (n *node) dataset(name string, now time.Time) (api.DatasetStatus, bool) {
	if n.stale(now) {
		return api.DatasetStatus{}, false
	}
	for _, d := range n.report.Datasets {
		if d.Name == name {
			return d, true
		}
	}
	return api.DatasetStatus{}, false
}

// mount returns the node's mount through which a dataset is read, the first that is
// ready if there are several, and nil if none shows it.
func (n *node) mount(dataset, name string) *api.MountStatus {
	var found *api.MountStatus
	for i := range n.report.Mounts {
		m := &n.report.Mounts[i]
		if name != "" && m.Name != name || !within(dataset, n.sources[i]) {
			continue
		}
		if m.Ready {
			return m
		}
		if found == nil {
			found = m
		}
	}
	return found
}

// within reports whether a dataset lies in what a mount shows, both normalized.
func within(dataset, source string) bool {
	return source != "" && strings.HasPrefix(dataset, source) && (len(dataset) == len(source) || dataset[len(source)] == '/')
}
