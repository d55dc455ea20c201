package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/pause"
)

// silentCluster is a cluster with an agent on each of two nodes, and a controller.
type silentCluster struct {
	*fake.Clientset
	t *testing.T
}

func newSilentCluster(t *testing.T) *silentCluster {
	t.Helper()
	c := &silentCluster{fake.NewClientset(), t}
	for _, name := range []string{"n1", "n2"} {
		if _, err := c.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A lease that is not an agent's is nobody's silence.
	if _, err := c.CoordinationV1().Leases("s").Create(t.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// agent renews the lease of a node until ctx ends.
func (c *silentCluster) agent(ctx context.Context, node string) {
	w := &leaseWriter{leases: c.CoordinationV1().Leases("s"), node: node}
	for ctx.Err() == nil {
		_ = w.renew(ctx, c.node(node), time.Now()) // what fails is tried again
		pause.For(ctx, time.Second)
	}
}

func (c *silentCluster) node(name string) *v1.Node {
	c.t.Helper()
	n, err := c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// marked reports whether a node is marked as one whose agent is silent.
func (c *silentCluster) marked(name string) bool {
	n := c.node(name)
	tainted := find(n.Spec.Taints, api.TaintMountUnready, v1.TaintEffectNoSchedule) >= 0
	unknown := false
	for _, has := range n.Status.Conditions {
		unknown = unknown || has.Type == api.ConditionMountReady && has.Status == v1.ConditionUnknown
	}
	if tainted != unknown {
		c.t.Errorf("%s: tainted %t, unknown %t", name, tainted, unknown)
	}
	if find(n.Spec.Taints, api.TaintMountUnready, v1.TaintEffectNoExecute) >= 0 {
		c.t.Errorf("%s: silence evicts", name)
	}
	return tainted
}

func TestASilentAgentsNodeIsMarkedAndTheAgentTakesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSilentCluster(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		one, dies := context.WithCancel(ctx)
		go c.agent(one, "n1")
		go c.agent(ctx, "n2")
		go NewController(c, "s", slog.New(slog.DiscardHandler)).Run(ctx)
		time.Sleep(10 * time.Minute)
		if c.marked("n1") || c.marked("n2") {
			t.Fatal("a node is marked whose agent speaks")
		}
		dies()
		time.Sleep(30 * time.Second)
		if c.marked("n1") {
			t.Error("marked too soon")
		}
		time.Sleep(30 * time.Second)
		if !c.marked("n1") || c.marked("n2") {
			t.Errorf("a minute after the agent of n1 died: n1 %t, n2 %t", c.marked("n1"), c.marked("n2"))
		}

		w := &nodeWriter{nodes: c.CoreV1().Nodes(), name: "n1"}
		n := c.node("n1")
		if err := w.write(ctx, n, judge(mountsOf(api.ReasonReady), n.Labels, &Config{}), time.Now()); err != nil {
			t.Fatal(err)
		}
		if c.marked("n1") {
			t.Error("the agent did not take it back")
		}
		cancel()
		synctest.Wait()
	})
}

func TestAnOutageOfTheAPIServerIsNobodysSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSilentCluster(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// The client must not be changed while it is used.
		from := time.Now().Add(time.Minute)
		c.PrependReactor("*", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
			if now := time.Now(); !now.Before(from) && now.Before(from.Add(5*time.Minute)) {
				return true, nil, errors.New("connection refused")
			}
			return false, nil, nil
		})
		go c.agent(ctx, "n1")
		go c.agent(ctx, "n2")
		go NewController(c, "s", slog.New(slog.DiscardHandler)).Run(ctx)
		time.Sleep(time.Minute)
		for range 60 {
			time.Sleep(10 * time.Second)
			if c.marked("n1") || c.marked("n2") {
				t.Fatal("a node is marked for the API server's outage")
			}
		}
		cancel()
		synctest.Wait()
	})
}
