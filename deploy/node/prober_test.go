package node

import (
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

func containsField(table, path string) bool { return strings.Contains(table, " "+path+" ") }

func TestAProbeSaysWhatBecameOfAMount(t *testing.T) {
	m := mountHanging(t)
	statfs, _ := programs(t, t.TempDir())
	p := &prober{command: statfs, path: m.at, patience: patience}
	defer p.close()
	if got := p.probe(t.Context()); !got.ready() {
		t.Fatalf("a mount that answers: %+v", got)
	}

	p.patience = 20 * time.Millisecond
	m.hold()
	if got := p.probe(t.Context()); got.reason != api.ReasonStuck {
		t.Fatalf("a mount that hangs: %+v", got)
	}
	first := p.child
	for range 5 {
		if got := p.probe(t.Context()); got.reason != api.ReasonStuck || p.child != first {
			t.Fatalf("a mount that still hangs: %+v, in another child: %t", got, p.child != first)
		}
	}
	m.letGo()
	p.patience = patience
	eventually(t, "the mount that answers again", func() bool { return p.probe(t.Context()).ready() })

	m.die(t)
	if got := p.probe(t.Context()); got.reason != api.ReasonDead {
		t.Errorf("a mount whose daemon died: %+v", got)
	}
	if err := m.server.Unmount(); err != nil {
		t.Log(err) // the session ended with the connection
	}
	eventually(t, "that nothing is mounted", func() bool { return p.probe(t.Context()).reason == api.ReasonNotMounted })

	gone := &prober{command: statfs, path: "/nowhere/at/all", patience: patience}
	defer gone.close()
	if got := gone.probe(t.Context()); got.reason != api.ReasonNotMounted {
		t.Errorf("a path that is not there: %+v", got)
	}
	broken := &prober{command: []string{"/nowhere/prober"}, path: m.at, patience: patience}
	if got := broken.probe(t.Context()); got.reason != api.ReasonFailed {
		t.Errorf("without the prober's program: %+v", got)
	}
}

func TestAMountIsReadyAgainAfterThreeGoodProbes(t *testing.T) {
	w := &mountWatcher{cfg: &Config{}}
	good, bad := probed{reason: api.ReasonReady}, probed{reason: api.ReasonStuck}
	for i, step := range []struct {
		probed
		ready bool
	}{{good, true}, {bad, false}, {good, false}, {good, false}, {bad, false}, {good, false}, {good, false}, {good, true}, {good, true}, {bad, false}} {
		w.note(step.probed)
		if s, _ := w.state(); s.ready() != step.ready {
			t.Errorf("step %d: ready is %t", i, s.ready())
		}
	}
}
