package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pailfs/pailfs/deploy/node"
)

// version is set by the linker.
var version = "devel"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// cli is the grammar of the command line.
type cli struct {
	Node       nodeCmd       `cmd:"" help:"Tell the Node that this runs on what its mounts, caches and GPUs are."`
	Controller controllerCmd `cmd:"" help:"Mark the nodes whose agents have fallen silent."`
	Extender   extenderCmd   `cmd:"" help:"Answer a stock kube-scheduler which nodes suit a pod."`
	Statfs     statfsCmd     `cmd:"" hidden:"" help:"Call statfs on a path for every byte of standard input."`
	Own        ownCmd        `cmd:"" hidden:"" help:"Give a directory to a user."`
	Version    versionCmd    `cmd:"" help:"Show the version."`
}

// program is what a command may use of its surroundings.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// usageError is a complaint about arguments.
type usageError struct{ error }

// Unwrap returns the complaint.
func (e usageError) Unwrap() error { return e.error }

// log returns where a command that runs on writes what happens.
func (p program) log() *slog.Logger { return slog.New(slog.NewTextHandler(p.stderr, nil)) }

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(p program) error {
	_, err := fmt.Fprintf(p.stdout, "pailfs-kube %s\n", version)
	return err
}

type statfsCmd struct {
	Path string `arg:""`
}

// Run answers until standard input ends.
func (c *statfsCmd) Run(p program) error { return node.ServeStatfs(c.Path, p.stdin, p.stdout) }

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

// beside finds a program of pailfs: beside this one, else on PATH.
func beside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither beside pailfs-kube nor on PATH: install both", name)
	}
	return path, nil
}

// interrupted returns a context that ends with the first SIGINT or SIGTERM.
func interrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

func main() {
	os.Exit(run(os.Args[1:], program{os.Stdin, os.Stdout, os.Stderr}))
}

// run does what the arguments say and returns the exit code.
func run(args []string, p program) int {
	var grammar cli
	answered := false
	parser := kong.Must(&grammar, kong.Name("pailfs-kube"), kong.Description("pailfs in Kubernetes."),
		kong.Writers(p.stdout, p.stderr), kong.Exit(func(int) { answered = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if answered {
		return 0
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "pailfs-kube: %v; see pailfs-kube --help\n", err)
		return exitUsage
	}
	if err := parsed.Run(p); err != nil {
		fmt.Fprintf(p.stderr, "pailfs-kube: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		if _, ok := errors.AsType[usageError](err); ok {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}
