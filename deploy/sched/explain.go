package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxExamples is how many nodes or mounts a message names.
const maxExamples = 3

// deployAgent is what helps where there is no agent.
const deployAgent = "deploy it with kubectl apply -k deploy/kubernetes, and see its pods' logs"

// nowhere says why no node suits p, whatever room there is.
func (c *Cluster) nowhere(p Pod) *Refusal {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := p.reader()
	reasons := map[Reason][]*node{}
	present := 0
	for _, n := range c.nodes {
		if n.present {
			present++
			reasons[n.suits(r)] = append(reasons[n.suits(r)], n)
		}
	}
	switch {
	case len(reasons[NoAgent]) == present:
		return refuse(NoAgent, "no pailfs agent on any of %d nodes: %s", present, deployAgent)
	case len(reasons[MountUnready])+len(reasons[GPUUnhealthy]) == 0:
		return c.unknown(p, reasons[NotMounted], len(reasons[NoAgent]))
	}
	ill := slices.Concat(reasons[MountUnready], reasons[GPUUnhealthy])
	slices.SortFunc(ill, func(a, b *node) int { return cmp.Compare(a.Name, b.Name) })
	var examples []string
	for _, n := range ill[:min(len(ill), maxExamples)] {
		examples = append(examples, n.Name+": "+n.explain(n.suits(r), r))
	}
	reason, what := MountUnready, "mount"
	if len(reasons[MountUnready]) == 0 {
		reason, what = GPUUnhealthy, "GPU"
	}
	text := fmt.Sprintf("dataset %q is mounted on %s, and none of them may run the pod (%s)", p.Dataset, nodes(len(ill)), strings.Join(examples, "; "))
	if more := len(ill) - maxExamples; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return refuse(reason, "%s: mend the %s there (pailfs status, pailfs gpu), or mount it on others; the pod goes on by itself then", text, what)
}

// unknown says that no mount shows p's dataset and what the mounts do show. c.mu is
// held.
func (c *Cluster) unknown(p Pod, reporting []*node, silent int) *Refusal {
	shown := map[string]int{}
	named := false
	for _, n := range reporting {
		for i, m := range n.report.Mounts {
			if n.sources[i] != "" {
				shown[n.sources[i]]++
			}
			named = named || m.Name == p.Mount
		}
	}
	where := nodes(len(reporting))
	if silent > 0 {
		where += fmt.Sprintf(" (%d more have no pailfs agent)", silent)
	}
	if p.Mount != "" && !named {
		return refuse(NotMounted, "no mount is named %q on %s: see the names with kubectl get pailfsnodecaches, or leave the annotation %s away", p.Mount, where, AnnotationMount)
	}
	if len(shown) == 0 {
		return refuse(NotMounted, "nothing is mounted on %s: mount the bucket there, see deploy/README.md", where)
	}
	sources := slices.SortedFunc(maps.Keys(shown), func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(p.Dataset, a), distance(p.Dataset, b)), cmp.Compare(a, b))
	})
	examples := strings.Join(sources[:min(len(sources), maxExamples)], ", ")
	if more := len(sources) - maxExamples; more > 0 {
		examples += fmt.Sprintf(" and %d more", more)
	}
	return refuse(UnknownData, "no mount shows dataset %q on %s; mounts show %s: name a dataset below one of these in the annotation, or mount that bucket", p.Dataset, where, examples)
}

// nodes says a number of nodes.
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// distance returns by how many edits two names differ in their leading components, as
// many as the second has.
func distance(dataset, source string) int {
	parts := strings.Split(dataset, "/")
	a, b := strings.Join(parts[:min(len(parts), 1+strings.Count(source, "/"))], "/"), source
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// tooLarge refuses a pod that wants more of a device than any node has when empty.
// The rest of its requests is the stock scheduler's to judge.
func (c *Cluster) tooLarge(p Pod) *Refusal {
	devices := p.Wants.devices()
	if len(devices) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.largest == nil {
		c.largest = Resources{}
		for _, n := range c.nodes {
			for name, amount := range n.Capacity {
				c.largest[name] = max(c.largest[name], amount)
			}
		}
	}
	for _, name := range devices {
		switch most := c.largest[name]; {
		case most == 0:
			return refuse(TooLarge, "the pod wants %d %s and no node has any: see that the device plugin runs, or write the resource's name as it does (kubectl describe nodes)", p.Wants[name], name)
		case most < p.Wants[name]:
			return refuse(TooLarge, "the pod wants %d %s and no node has more than %d: ask for at most %d a pod, and for several pods with the annotation %s", p.Wants[name], name, most, most, AnnotationGangSize)
		}
	}
	return nil
}

// crowded says why there is no room for all of a gang.
func (c *Cluster) crowded(p Pod, need, room int) *Refusal {
	c.mu.RLock()
	total := 0
	for _, n := range c.nodes {
		if n.present {
			total = min(maxGang, total+p.Wants.Times(n.Capacity))
		}
	}
	c.mu.RUnlock()
	if total < p.GangSize {
		return refuse(GangTooLarge, "gang %s is %d pods of (%s) each, and all nodes together take %d when they are empty: make the gang smaller or add nodes", p.Gang, p.GangSize, p.Wants, total)
	}
	return refuse(GangNoRoom, "gang %s needs room for %d more pods of (%s) each at once and there is room for %d: it waits until others end; add nodes, or make the gang smaller", p.Gang, need, p.Wants, room)
}
