package sched

import (
	"fmt"
	"time"
)

// Reason is why a pod may not go somewhere, or anywhere; programs may compare it.
type Reason string

// The reasons. Those up to GPUUnhealthy are of one node or of all, the others of the pod.
const (
	NoAgent       Reason = "NoAgent"       // the node does not say anything of mounts
	AgentSilent   Reason = "AgentSilent"   // it has not for a long time
	MountUnready  Reason = "MountUnready"  // a mount does not answer
	NotMounted    Reason = "NotMounted"    // no mount shows the dataset
	GPUUnhealthy  Reason = "GPUUnhealthy"  // a GPU does not work
	UnknownData   Reason = "UnknownData"   // no mount of any node shows the dataset
	TooLarge      Reason = "TooLarge"      // no node has as many devices, even empty
	GangTooLarge  Reason = "GangTooLarge"  // all nodes together have not
	GangPartial   Reason = "GangPartial"   // the gang's other pods do not exist yet
	GangNoRoom    Reason = "GangNoRoom"    // there is no room for all of the gang
	GangWaits     Reason = "GangWaits"     // another gang is being placed
	BadAnnotation Reason = "BadAnnotation" // an annotation cannot be read
)

// Refusal is a reason in words: what is wrong, and what would help.
type Refusal struct {
	Reason  Reason
	Message string
}

// refuse makes a refusal.
func refuse(r Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// reader returns what decides which nodes suit p.
func (p Pod) reader() reader { return reader{dataset: p.Dataset, mount: p.Mount, gpus: p.gpus()} }

// Check says why a node may not run a pod, and nil if it may. Only what the agents say
// counts, never a label: what stock schedulers check as well is left to them.
func (c *Cluster) Check(p Pod, name string, now time.Time) *Refusal {
	if p.Dataset == "" {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.nodes[name]
	if n == nil {
		n = &node{}
	}
	reason := n.check(p.reader(), now)
	if reason == "" {
		return nil
	}
	return &Refusal{Reason: reason, Message: n.explain(reason, p.reader())}
}

// check returns why a pod that reads r may not run on n, or nothing.
func (n *node) check(r reader, now time.Time) Reason {
	if reason := n.suits(r); reason != "" {
		return reason
	}
	if now.Sub(n.MountReady.Heartbeat) > conditionAge {
		return AgentSilent
	}
	return ""
}

// suits is check without what changes by the clock alone.
func (n *node) suits(r reader) Reason {
	switch {
	case !n.present || n.MountReady.Status == "":
		return NoAgent
	case !n.reported:
		return NoAgent
	}
	m := n.mount(r.dataset, r.mount)
	switch {
	case m == nil:
		return NotMounted
	case n.MountReady.Status != "True" || !m.Ready:
		return MountUnready
	case r.gpus && n.GPUHealthy.Status != "True" && (n.GPUHealthy.Status != "Unknown" || n.GPUHealthy.Reason != reasonNoGPU):
		return GPUUnhealthy
	}
	return ""
}

// reasonNoGPU goes with GPUHealthy Unknown on a node whose agent expects no GPU: then
// there is nothing to be ill, and whether there is one is the device plugin's to say.
const reasonNoGPU = "NoGPU"

// explain says a reason of n in words.
func (n *node) explain(reason Reason, r reader) string {
	switch reason {
	case NoAgent:
		if n.MountReady.Status != "" {
			return "its pailfs agent has not reported its mounts (no PailfsNodeCache)"
		}
		return "no pailfs agent on it"
	case AgentSilent:
		return fmt.Sprintf("its pailfs agent has been silent since %s", n.MountReady.Heartbeat.UTC().Format(time.RFC3339))
	case NotMounted:
		if r.mount != "" {
			return fmt.Sprintf("its mount %q does not show dataset %q", r.mount, r.dataset)
		}
		return fmt.Sprintf("no mount on it shows dataset %q", r.dataset)
	case MountUnready:
		if n.MountReady.Status == "True" {
			m := n.mount(r.dataset, r.mount)
			return fmt.Sprintf("mount %s is not ready (%s)", m.Name, m.Reason)
		}
		return n.MountReady.say("MountReady")
	case GPUUnhealthy:
		return n.GPUHealthy.say("GPUHealthy")
	}
	return string(reason)
}

// say writes a condition down.
func (c Condition) say(name string) string {
	if c.Status == "" {
		return fmt.Sprintf("%s is not known", name)
	}
	text := fmt.Sprintf("%s is %s (%s)", name, c.Status, c.Reason)
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}
