package grafana

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// work reads, writes, looks for what is not there and asks for the status of a mount until stop
// is called, so that there is something to be shown.
func work(m *mount, objects int) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
			// What fails here is missing in what is shown.
			_, _ = os.ReadFile(m.path(fmt.Sprintf("data/%05d", i%objects)))
			_, _ = os.Stat(m.path(fmt.Sprintf("missing/%d", i)))
			if f, err := os.Create(m.path(fmt.Sprintf("made-%d", i%50))); err == nil {
				_, _ = fmt.Fprintln(f, i)
				_ = f.Sync()
				_ = f.Close()
			}
			if i%20 == 0 {
				_ = exec.Command(pailfs, "status", "--json", m.at).Run()
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

// TestEveryPanelShowsANumber asks a Prometheus that asks a mount under load, and an agent, every
// query of every dashboard, as Grafana would, and what rules.yaml computes beforehand.
func TestEveryPanelShowsANumber(t *testing.T) {
	t.Parallel()
	const objects = 2000
	e := newEmulator(t, objects)
	m := newMount(t, e, t.TempDir(), "--metadata-ttl=1s", "--negative-ttl=0s")
	a := newAgent(t, m)
	p := newProm(t, quick(t), m.address, strings.TrimPrefix(a.server.URL, "http://"))
	t.Cleanup(work(m, objects))
	for _, r := range readRules(t) {
		if r.Record != "" {
			eventually(t, "a number that is recorded as "+r.Record, func() bool { return p.numbers(r.Record) > 0 })
		}
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	for _, file := range dashboards {
		for _, q := range queriesOf(t, file) {
			expr := variables.Replace(q.expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s, panel %q: unknown variable in %s", q.dashboard, q.panel, expr)
				continue
			}
			eventually(t, fmt.Sprintf("a number in %s, panel %q: %s", q.dashboard, q.panel, expr), func() bool { return p.numbers(expr) > 0 })
		}
	}
}
