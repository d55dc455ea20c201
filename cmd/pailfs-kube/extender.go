package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/sched/extender"
)

// extenderCmd is `pailfs-kube extender`.
type extenderCmd struct {
	cluster
	Listen string `name:"listen" default:"127.0.0.1:8686" placeholder:"HOST:PORT" help:"Where kube-scheduler asks, without TLS: beside it, on loopback."`
}

// Help gives examples.
func (extenderCmd) Help() string {
	return `For clusters that keep their kube-scheduler: it asks here which nodes a pod that names a dataset may run on, and how good they are. Its configuration needs

	extenders:
	- urlPrefix: http://127.0.0.1:8686
	  filterVerb: filter
	  prioritizeVerb: prioritize
	  weight: 10
	  nodeCacheCapable: true

A stock scheduler asks about 500 of 10,000 nodes, so that most warm nodes are never seen; percentageOfNodesToScore: 100 mends that and is slow. pailfs-scheduler does neither. Its account may be that of pailfs-scheduler: it lists and watches nodes, pods and PailfsNodeCaches. Pods with the annotation pailfs.io/gang-size are refused: only pailfs-scheduler places gangs.

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments.

Examples:

	pailfs-kube extender
	pailfs-kube extender --kubeconfig ~/.kube/config --listen 127.0.0.1:9000`
}

// Run answers until it is interrupted.
func (c *extenderCmd) Run(p command.Program) error {
	config, err := c.connect(20)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return command.Usage(fmt.Errorf("--listen %s: %w", c.Listen, err))
	}
	ctx, stop := command.Interruptible()
	defer stop()
	handler, err := extender.Open(ctx, client, config, logTo(p))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // nobody waits for what it says
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve --listen %s: %w", c.Listen, err)
	}
	return nil
}
