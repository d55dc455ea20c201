// Command pailfs-scheduler is kube-scheduler with the plugin Pailfs. Its flags and its
// configuration file are kube-scheduler's.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/pailfs/pailfs/deploy/sched/plugin"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))))
}
