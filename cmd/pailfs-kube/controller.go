package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/node"
)

// controllerCmd is `pailfs-kube controller`.
type controllerCmd struct {
	cluster
	Namespace string `name:"namespace" env:"POD_NAMESPACE" required:"" help:"Where the agents' leases lie, and its own."`
}

// Help gives examples.
func (controllerCmd) Help() string {
	return `An agent whose lease has not changed for 40 s is silent: its node's condition MountReady becomes Unknown and the node is tainted, so that no new pod comes to it; nothing is evicted. The agent takes both back when it speaks again. Any number may run; one of them works.

Exit codes: 0 ended by a signal, 1 failed or replaced by another one, 2 wrong arguments.

Examples:

	pailfs-kube controller --namespace pailfs-system`
}

// Run scans while it is the one that works.
func (c *controllerCmd) Run(p command.Program) error {
	config, err := c.connect(20)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	return c.lead(ctx, client, fmt.Sprintf("%s-%d", host, os.Getpid()), logTo(p))
}

// lead scans while it is the one that works, until ctx ends. Whatever it says to the API
// server ends with ctx too, so that nothing is left to wait for.
func (c *controllerCmd) lead(ctx context.Context, client kubernetes.Interface, identity string, log *slog.Logger) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "pailfs-controller", Namespace: c.Namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { node.NewController(client, c.Namespace, log).Run(ctx) },
			OnStoppedLeading: func() {},
		},
	})
	if ctx.Err() == nil {
		return errors.New("another controller took over, or the API server is away: start again")
	}
	return nil
}
