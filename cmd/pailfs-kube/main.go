package main

import (
	"fmt"
	"log/slog"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/node"
)

// version is set by the linker.
var version = "devel"

// cli is the grammar of the command line.
type cli struct {
	Node       nodeCmd            `cmd:"" help:"Tell the Node that this runs on what its mounts, caches and GPUs are."`
	Controller controllerCmd      `cmd:"" help:"Mark the nodes whose agents have fallen silent."`
	Extender   extenderCmd        `cmd:"" help:"Answer a stock kube-scheduler which nodes suit a pod."`
	Statfs     statfsCmd          `cmd:"" hidden:"" help:"Call statfs on a path for every byte of standard input."`
	Own        ownCmd             `cmd:"" hidden:"" help:"Give a directory to a user."`
	Version    command.VersionCmd `cmd:"" help:"Show the version."`
}

// logTo returns where a command that runs on writes what happens.
func logTo(p command.Program) *slog.Logger { return slog.New(slog.NewTextHandler(p.Stderr, nil)) }

type statfsCmd struct {
	Path string `arg:""`
}

// Run answers until standard input ends.
func (c *statfsCmd) Run(p command.Program) error { return node.ServeStatfs(c.Path, p.Stdin, p.Stdout) }

// cluster says how to reach the API server.
type cluster struct {
	Kubeconfig string `name:"kubeconfig" env:"KUBECONFIG" placeholder:"FILE" help:"How to reach the API server; the pod's service account, unless given."`
}

// connect returns a configuration of clients that make at most qps requests a second.
func (c cluster) connect(qps float32) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w: run in a pod, or give --kubeconfig", err)
	}
	cfg.QPS, cfg.Burst = qps, int(2*qps)
	cfg.UserAgent = "pailfs-kube/" + version
	return cfg, nil
}

func main() {
	os.Exit(run(command.Started("pailfs-kube", version)))
}

// run does what the arguments say and returns the exit code.
func run(p command.Program) int { return p.Run("pailfs in Kubernetes.", new(cli)) }
