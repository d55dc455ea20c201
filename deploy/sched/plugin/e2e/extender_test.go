package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/pailfs/pailfs/deploy/sched"
)

func TestStockSchedulerWithTheExtender(t *testing.T) {
	c := setup(t)
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	newProgram(c, "pailfs-kube", "extender", "--kubeconfig", c.schedulerKubeconfig, "--listen", address).run(t)
	c.until(t, "the extender answers", func(context.Context) (bool, error) {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false, nil // not listening yet
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err == nil && response.StatusCode == http.StatusOK, nil
	})
	config := c.file("extended.yaml", fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
profiles: [{schedulerName: extended}]
extenders:
- {urlPrefix: "http://%s", filterVerb: filter, prioritizeVerb: prioritize, weight: 10, nodeCacheCapable: true}
`, c.kubeconfig, address))
	newProgram(c, "kubecp", "scheduler", "--config="+config, "--secure-port=0").run(t)

	warm, dead := well("warm", 2), well("dead", 8)
	warm.warm = map[string]int64{"imagenet/train": 100}
	dead.warm, dead.mountReady = warm.warm, "False"
	c.add(t, well("cold", 8), warm, dead)
	for i, want := range []string{"warm", "warm", "cold"} {
		p := pod(fmt.Sprintf("trainer-%d", i), "imagenet/train")
		p.Spec.SchedulerName = "extended"
		c.create(t, p)
		if node := c.bound(t, p.Name); node != want {
			t.Errorf("%s is on %s, want %s", p.Name, node, want)
		}
	}
	gang := pod("gang", "imagenet/train")
	gang.Spec.SchedulerName = "extended"
	gang.Annotations[sched.AnnotationGang], gang.Annotations[sched.AnnotationGangSize] = "g", "2"
	c.create(t, gang)
	c.refusal(t, "gang", "an extender cannot place pods together: set schedulerName to pailfs-scheduler")
}
