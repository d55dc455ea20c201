package node

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

const (
	// heartbeat is how often conditions are written though nothing changed.
	heartbeat = 5 * time.Minute
	// labelPause is the least time between two changes of labels.
	labelPause = time.Minute
)

// taintsOf returns the taints that a Node should have, and whether they differ from those it
// has. Others' taints stay where they are. When a grace began is when the taint with
// NoSchedule was added, so that it outlasts the agent.
func taintsOf(node *v1.Node, want []taint, now time.Time) (taints []v1.Taint, changed bool) {
	taints = slices.Clone(node.Spec.Taints)
	for _, w := range want {
		since := now
		if i := find(taints, w.key, v1.TaintEffectNoSchedule); i >= 0 && taints[i].TimeAdded != nil && taints[i].Value != api.ReasonAgentSilent {
			since = taints[i].TimeAdded.Time
		}
		evict := w.on && w.grace > 0 && now.Sub(since) >= w.grace
		for _, effect := range []struct {
			v1.TaintEffect
			on   bool
			time time.Time
		}{{v1.TaintEffectNoSchedule, w.on, since}, {v1.TaintEffectNoExecute, evict, now}} {
			i := find(taints, w.key, effect.TaintEffect)
			switch {
			case !effect.on && i >= 0:
				taints, changed = slices.Delete(taints, i, i+1), true
			case effect.on && i < 0:
				taints, changed = append(taints, newTaint(w, effect.TaintEffect, effect.time)), true
			case effect.on && (taints[i].Value != w.reason || taints[i].TimeAdded == nil):
				taints[i], changed = newTaint(w, effect.TaintEffect, effect.time), true
			}
		}
	}
	return taints, changed
}

func newTaint(w taint, effect v1.TaintEffect, at time.Time) v1.Taint {
	added := metav1.NewTime(at.UTC().Truncate(time.Second))
	return v1.Taint{Key: w.key, Value: w.reason, Effect: effect, TimeAdded: &added}
}

// find returns the index of the taint with a key and effect, or -1.
func find(taints []v1.Taint, key string, effect v1.TaintEffect) int {
	return slices.IndexFunc(taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == effect })
}

// owned reports whether a label is the agent's to set and to remove.
func owned(key string) bool {
	return strings.HasPrefix(key, api.LabelMountPrefix) || strings.HasPrefix(key, api.LabelDatasetPrefix)
}

// labelsOf returns what to change of a Node's labels: nil means remove.
func labelsOf(node *v1.Node, want map[string]string) map[string]*string {
	changes := map[string]*string{}
	for key := range node.Labels {
		if _, ok := want[key]; owned(key) && !ok {
			changes[key] = nil
		}
	}
	for key, value := range want {
		if node.Labels[key] != value {
			changes[key] = &value
		}
	}
	return changes
}

// conditionsOf returns the conditions to write into a Node: those that changed, or
// all when a heartbeat is due.
func conditionsOf(node *v1.Node, want []condition, now time.Time) []v1.NodeCondition {
	var changed []v1.NodeCondition
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	for _, w := range want {
		c := v1.NodeCondition{Type: w.kind, Status: w.status, Reason: w.reason, Message: w.message, LastHeartbeatTime: at, LastTransitionTime: at}
		i := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == w.kind })
		if i >= 0 {
			has := node.Status.Conditions[i]
			if has.Status == c.Status {
				c.LastTransitionTime = has.LastTransitionTime
				if has.Reason == c.Reason && has.Message == c.Message && now.Sub(has.LastHeartbeatTime.Time) < heartbeat {
					continue
				}
			}
		}
		changed = append(changed, c)
	}
	return changed
}

// nodePatch returns a patch of a Node's labels and taints. Taints are a list that is
// replaced as a whole, so the patch holds only for the version of the Node that it was
// made of.
func nodePatch(node *v1.Node, labels map[string]*string, taints []v1.Taint, taintsChanged bool) []byte {
	meta := map[string]any{"resourceVersion": node.ResourceVersion}
	patch := map[string]any{"metadata": meta}
	if len(labels) > 0 {
		meta["labels"] = maps.Clone(labels)
	}
	if taintsChanged {
		if taints == nil {
			taints = []v1.Taint{}
		}
		patch["spec"] = map[string]any{"taints": taints}
	}
	return encode(patch)
}

// statusPatch returns a strategic patch that sets conditions and leaves others' alone: they
// are merged by type.
func statusPatch(conditions []v1.NodeCondition) []byte {
	return encode(map[string]any{"status": map[string]any{"conditions": conditions}})
}

// encode encodes what cannot fail.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and Kubernetes' own types
	}
	return raw
}
