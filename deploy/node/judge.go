package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// mountState is what is known of one mount.
type mountState struct {
	Mount
	probed
	// status is what its daemon said last, nil before it said anything; degraded why it serves
	// less well than it should.
	status   *status
	degraded string
	// egress is how many bytes a second it reads from the object store.
	egress int64
}

// observation is what is known of a node at one time.
type observation struct {
	at       time.Time
	mounts   []mountState
	datasets []api.DatasetStatus
	// gpus is nil if they are not looked after, or nothing is known yet.
	gpus *gpuState
}

// desired is what a Node should say.
type desired struct {
	conditions []condition
	taints     []taint
	labels     map[string]string
}

// condition is one of the agent's.
type condition struct {
	kind            v1.NodeConditionType
	status          v1.ConditionStatus
	reason, message string
}

// taint says whether the node should have one.
type taint struct {
	key string
	// reason is its value while it is there.
	reason string
	on     bool
	// grace is after how long it comes with NoExecute too; zero means never.
	grace time.Duration
}

// maxLabels bounds the agent's labels of a Node: of datasets those with the most bytes
// have one.
const maxLabels = 32

// maxMessage bounds a condition's message.
const maxMessage = 1024

// judge returns what a Node with the given labels should say.
func judge(o *observation, has map[string]string, cfg *Config) desired {
	d := desired{labels: map[string]string{}}
	mount := condition{kind: api.ConditionMountReady, status: v1.ConditionTrue, reason: api.ReasonReady}
	var bad, weak []string
	for _, m := range o.mounts {
		switch {
		case !m.ready():
			if len(bad) == 0 {
				mount.status, mount.reason = v1.ConditionFalse, m.reason
			}
			bad = append(bad, m.message)
			continue
		case m.degraded != "":
			weak = append(weak, m.Path+": "+m.degraded)
		}
		if len(d.labels) < maxLabels {
			d.labels[api.MountLabel(m.Name)] = api.LabelReady
		}
	}
	mount.message = fmt.Sprintf("%d of %d mounts answer", len(o.mounts)-len(bad), len(o.mounts))
	if len(bad) == 0 && len(weak) > 0 {
		mount.reason = api.ReasonDegraded
	}
	if said := append(bad, weak...); len(said) > 0 {
		mount.message = strings.Join(said, "; ")
	}
	d.conditions = append(d.conditions, mount)
	d.taints = append(d.taints, taint{key: api.TaintMountUnready, reason: mount.reason, on: mount.status != v1.ConditionTrue, grace: cfg.EvictMount})

	if g := o.gpus; g != nil {
		c := condition{kind: api.ConditionGPUHealthy, status: v1.ConditionFalse, reason: g.reason, message: g.message}
		switch g.verdict {
		case gpuHealthy, gpuDegraded:
			c.status = v1.ConditionTrue
		case gpuUnknown:
			c.status = v1.ConditionUnknown
		}
		d.conditions = append(d.conditions, c)
		d.taints = append(d.taints, taint{key: api.TaintGPUUnhealthy, reason: g.reason, on: !g.works(), grace: cfg.EvictGPU})
	}
	labelDatasets(d.labels, o.datasets, has)
	for i := range d.conditions {
		if m := &d.conditions[i].message; len(*m) > maxMessage {
			*m = strings.ToValidUTF8((*m)[:maxMessage], "")
		}
	}
	return d
}

// labelDatasets adds labels of datasets, those with the most bytes first. has is
// what the Node is labelled with: what is warm stays so until it is far from it.
func labelDatasets(labels map[string]string, datasets []api.DatasetStatus, has map[string]string) {
	byBytes := slices.Clone(datasets)
	slices.SortStableFunc(byBytes, func(a, b api.DatasetStatus) int { return int(min(1, max(-1, b.BytesWarm-a.BytesWarm))) })
	for _, s := range byBytes {
		key := api.LabelDatasetPrefix + s.Hash
		if _, taken := labels[key]; len(labels) >= maxLabels || s.BytesWarm == 0 || taken {
			continue
		}
		threshold := api.WarmEnter
		if has[key] == api.LabelWarm {
			threshold = api.WarmLeave
		}
		labels[key] = api.LabelPartial
		if s.Fraction() >= threshold {
			labels[key] = api.LabelWarm
		}
	}
}
