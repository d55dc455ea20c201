package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestControllersEndAtOnce: the one that leads, which lets another one lead, and the one that
// never did.
func TestControllersEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		c := &controllerCmd{Namespace: "pailfs-system"}
		start := func(name string) (stop context.CancelFunc, ended chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			ended = make(chan error, 1)
			go func() { ended <- c.lead(ctx, client, name, slog.New(slog.DiscardHandler)) }()
			return cancel, ended
		}
		leads := func() string {
			lease, err := client.CoordinationV1().Leases(c.Namespace).Get(t.Context(), "pailfs-controller", metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil {
				t.Fatalf("%v: %v", err, lease)
			}
			return *lease.Spec.HolderIdentity
		}
		stopFirst, first := start("first")
		time.Sleep(time.Minute)
		stopSecond, second := start("second")
		time.Sleep(time.Minute)
		if leads() != "first" {
			t.Fatalf("%q leads", leads())
		}
		for _, c := range []struct {
			stop  context.CancelFunc
			ended chan error
		}{{stopSecond, second}, {stopFirst, first}} {
			began := time.Now()
			c.stop()
			if err := <-c.ended; err != nil || time.Since(began) != 0 {
				t.Errorf("ended after %s: %v", time.Since(began), err)
			}
		}
		if leads() != "" {
			t.Errorf("%q leads, and has ended", leads())
		}
	})
}
