package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// began is when the tests' stories begin.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// effects returns a node's taints in short.
func effects(taints []v1.Taint) []string {
	var out []string
	for _, t := range taints {
		out = append(out, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	return out
}

func TestTaintsComeAtOnceEvictAfterGraceAndGo(t *testing.T) {
	foreign := v1.Taint{Key: "example.com/mine", Effect: v1.TaintEffectNoExecute}
	n := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{foreign}}}
	bad := taint{key: api.TaintMountUnready, reason: "DaemonDead", on: true, grace: time.Minute}
	other := bad
	other.reason = "NotMounted"
	good := taint{key: api.TaintMountUnready, reason: "Ready"}
	schedule, execute := api.TaintMountUnready+"=DaemonDead:NoSchedule", api.TaintMountUnready+"=DaemonDead:NoExecute"
	own := "example.com/mine=:NoExecute"
	for i, c := range []struct {
		after   time.Duration
		wish    taint
		want    []string
		changed bool
	}{
		{0, good, []string{own}, false},
		{0, bad, []string{own, schedule}, true},
		{59 * time.Second, bad, []string{own, schedule}, false},
		{60 * time.Second, bad, []string{own, schedule, execute}, true},
		{61 * time.Second, bad, []string{own, schedule, execute}, false},
		{62 * time.Second, other, []string{own, api.TaintMountUnready + "=NotMounted:NoSchedule", api.TaintMountUnready + "=NotMounted:NoExecute"}, true},
		{63 * time.Second, good, []string{own}, true},
	} {
		taints, changed := taintsOf(n, []taint{c.wish}, began.Add(c.after))
		if diff := cmp.Diff(c.want, effects(taints)); diff != "" || changed != c.changed {
			t.Errorf("step %d: changed %t (-want +got):\n%s", i, changed, diff)
		}
		n.Spec.Taints = taints
	}
}

func TestGraceBeginsWhenTheAgentSeesForItself(t *testing.T) {
	n := &v1.Node{}
	silent := taint{key: api.TaintMountUnready, reason: api.ReasonAgentSilent, on: true}
	n.Spec.Taints, _ = taintsOf(n, []taint{silent}, began)
	bad := taint{key: api.TaintMountUnready, reason: "DaemonDead", on: true, grace: time.Minute}
	later := began.Add(time.Hour)
	n.Spec.Taints, _ = taintsOf(n, []taint{bad}, later)
	if diff := cmp.Diff([]string{api.TaintMountUnready + "=DaemonDead:NoSchedule"}, effects(n.Spec.Taints)); diff != "" {
		t.Errorf("an agent that returns evicts at once (-want +got):\n%s", diff)
	}
	// An agent that starts again goes on with the grace that runs.
	n.Spec.Taints, _ = taintsOf(n, []taint{bad}, later.Add(time.Minute))
	if len(n.Spec.Taints) != 2 {
		t.Errorf("after the grace: %v", effects(n.Spec.Taints))
	}
}

func TestOnlyItsOwnLabelsAreTouched(t *testing.T) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"kubernetes.io/hostname": "n1", "pailfs.io/elsewhere": "x", "pailfs.io/ds.00000000": "warm", "pailfs.io/mount.data": "ready",
	}}}
	got := labelsOf(n, map[string]string{"pailfs.io/mount.data": "ready", "pailfs.io/ds.11111111": "warm"})
	warm := "warm"
	want := map[string]*string{"pailfs.io/ds.00000000": nil, "pailfs.io/ds.11111111": &warm}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestConditionsAreWrittenWhenTheyChangeAndNowAndThen(t *testing.T) {
	n := &v1.Node{}
	good := condition{kind: api.ConditionMountReady, status: v1.ConditionTrue, reason: "Ready", message: "1 of 1"}
	weak := good
	weak.reason = "Degraded"
	bad := good
	bad.status = v1.ConditionFalse
	for i, c := range []struct {
		after   time.Duration
		wish    condition
		written bool
		since   time.Duration
	}{
		{0, good, true, 0},
		{time.Minute, good, false, 0},
		{2 * time.Minute, weak, true, 0},
		{3 * time.Minute, bad, true, 3 * time.Minute},
		{4 * time.Minute, bad, false, 0},
		{9 * time.Minute, bad, true, 3 * time.Minute},
	} {
		got := conditionsOf(n, []condition{c.wish}, began.Add(c.after))
		if len(got) == 0 != !c.written {
			t.Fatalf("step %d: %+v", i, got)
		}
		if c.written {
			if at := got[0].LastTransitionTime.Time; !at.Equal(began.Add(c.since)) {
				t.Errorf("step %d: changed at %s", i, at)
			}
			n.Status.Conditions = got
		}
	}
}
