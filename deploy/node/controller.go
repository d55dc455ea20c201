package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/pause"
)

// Controller marks the nodes whose agents have fallen silent: MountReady becomes Unknown
// and the node gets the taint, with NoSchedule alone, for its mounts may be
// well. The agent takes both back when it speaks again. One controller runs in a
// cluster.
type Controller struct {
	client    kubernetes.Interface
	namespace string
	log       *slog.Logger
	agents    map[string]*agentSeen
	// answered is when the leases were last listed.
	answered time.Time
}

// agentSeen is what is known of one agent. Clocks of nodes differ, so a lease is stale when
// it has not changed for long, whatever time it tells.
type agentSeen struct {
	renewed metav1.MicroTime
	at      time.Time
	// marked is when its node was looked at last.
	marked time.Time
}

// NewController returns a controller of the agents whose leases lie in a namespace.
func NewController(client kubernetes.Interface, namespace string, log *slog.Logger) *Controller {
	return &Controller{client: client, namespace: namespace, log: log, agents: map[string]*agentSeen{}}
}

const (
	// scanEvery is how often leases are listed.
	scanEvery = 5 * time.Second
	// silence is how long a lease may stay as it is.
	silence = api.LeaseStaleSeconds * time.Second
	// gap is after how long without an answer of the API server silence is nobody's
	// fault but its own.
	gap = 3 * scanEvery
	// remark is how often the node of a silent agent is looked at again.
	remark = time.Minute
)

// Run scans until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	for {
		if err := c.scan(ctx, time.Now()); err != nil && ctx.Err() == nil {
			c.log.Warn("silent agents cannot be looked for", "error", err)
		}
		if !pause.For(ctx, scanEvery) {
			return
		}
	}
}

// scan lists the leases once and marks the nodes of those that are stale.
func (c *Controller) scan(ctx context.Context, now time.Time) error {
	leases, err := c.client.CoordinationV1().Leases(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: api.LabelAgent + "=node", ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list leases in %q: %w", c.namespace, err)
	}
	if now.Sub(c.answered) > gap {
		for _, a := range c.agents {
			a.at = now // agents could not renew either
		}
	}
	c.answered = now
	there := make(map[string]bool, len(leases.Items))
	for i := range leases.Items {
		l := &leases.Items[i]
		there[l.Name] = true
		c.look(ctx, l, now)
	}
	for name := range c.agents {
		if !there[name] {
			delete(c.agents, name) // the node, or the agent, was removed
		}
	}
	return nil
}

// look marks the node of a lease if it is stale.
func (c *Controller) look(ctx context.Context, l *coordination.Lease, now time.Time) {
	if l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || l.Name != api.LeaseName(*l.Spec.HolderIdentity) {
		return // not an agent's
	}
	a := c.agents[l.Name]
	if a == nil || !a.renewed.Equal(l.Spec.RenewTime) {
		c.agents[l.Name] = &agentSeen{renewed: *l.Spec.RenewTime, at: now}
		return
	}
	if now.Sub(a.at) <= silence || now.Sub(a.marked) < remark {
		return
	}
	node := *l.Spec.HolderIdentity
	switch marked, err := c.mark(ctx, node, now.Sub(a.at), now); {
	case apierrors.IsNotFound(err):
		a.marked = now
	case err != nil:
		c.log.Warn("the node of a silent agent is not marked yet", "node", node, "error", err)
	default:
		a.marked = now
		if marked {
			c.log.Warn("an agent is silent", "node", node, "for", now.Sub(a.at).Round(time.Second))
		}
	}
}

// mark taints a node and says why, unless that is done or the node is tainted already
// for something that its agent saw.
func (c *Controller) mark(ctx context.Context, name string, since time.Duration, now time.Time) (bool, error) {
	nodes := c.client.CoreV1().Nodes()
	n, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	changed := false
	if find(n.Spec.Taints, api.TaintMountUnready, v1.TaintEffectNoSchedule) < 0 {
		taints := append(n.Spec.Taints, newTaint(taint{key: api.TaintMountUnready, reason: api.ReasonAgentSilent}, v1.TaintEffectNoSchedule, now))
		if n, err = nodes.Patch(ctx, name, types.MergePatchType, nodePatch(n, nil, taints, true), metav1.PatchOptions{}); err != nil {
			return false, err
		}
		changed = true
	}
	for _, has := range n.Status.Conditions {
		if has.Type == api.ConditionMountReady && has.Status == v1.ConditionUnknown && has.Reason == api.ReasonAgentSilent {
			return changed, nil
		}
	}
	unknown := conditionsOf(n, []condition{{
		kind: api.ConditionMountReady, status: v1.ConditionUnknown, reason: api.ReasonAgentSilent,
		message: fmt.Sprintf("the node agent has not been heard of for %s; look at its pod", since.Round(time.Second)),
	}}, now)
	_, err = nodes.PatchStatus(ctx, name, statusPatch(unknown))
	return err == nil, err
}
