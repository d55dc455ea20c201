// Command kubecp is a Kubernetes control plane and the kubelet of a node in one program, for
// tests: one part a process, with the part's own flags. The scheduler is pailfs-scheduler.
//
//	kubecp etcd DIR CLIENT-URL PEER-URL
//	kubecp apiserver|controller-manager|scheduler|kubelet FLAGS…
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/pailfs/pailfs/deploy/sched/plugin"
)

func main() {
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
		os.Args = os.Args[1:]
	}
	var command *cobra.Command
	switch part {
	case "etcd":
		if err := etcd(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "kubecp: %v\n", err)
			os.Exit(1)
		}
		return
	case "apiserver":
		command = apiserver.NewAPIServerCommand()
	case "controller-manager":
		command = controllers.NewControllerManagerCommand()
	case "scheduler":
		command = scheduler.NewSchedulerCommand(scheduler.WithPlugin(plugin.Name, plugin.New))
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	default:
		fmt.Fprintf(os.Stderr, "kubecp: %q is no part of Kubernetes here: want etcd, apiserver, controller-manager, scheduler or kubelet\n", part)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// etcd serves until it fails or is killed. It does not sync: what a test wrote need not
// outlive a loss of power.
func etcd(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("etcd wants a directory and two URLs, got %d arguments", len(args))
	}
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer, err := url.Parse(args[2])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync, config.LogLevel = args[0], true, "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.QuotaBackendBytes = 4 << 30
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return <-server.Err()
}
