// Pailfs-csi is the driver with which pods in Kubernetes have volumes of pailfs.
//
//	pailfs-csi node --node NODE --endpoint /csi/csi.sock
//	pailfs-csi controller --endpoint /csi/csi.sock
//	pailfs-csi version
//
// It reads its arguments and serves; what it does is in the package deploy/csi.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/deploy/csi"
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
	Node       nodeCmd       `cmd:"" help:"Mount volumes on the node that this runs on."`
	Controller controllerCmd `cmd:"" help:"Provision volumes and remove them."`
	Version    versionCmd    `cmd:"" help:"Show the version."`
}

// common are the flags of every service.
type common struct {
	Endpoint string `name:"endpoint" default:"/csi/csi.sock" placeholder:"SOCKET" help:"Unix socket to listen on, perhaps with unix:// before it."`
	Pailfs   string `name:"pailfs" placeholder:"FILE" help:"The program pailfs; the one beside this, or on PATH, unless given."`
	LogLevel string `name:"log-level" enum:"debug,info,warn,error" default:"info" help:"Least important messages that are logged: debug (every call), info, warn (calls that fail) or error."`
}

type nodeCmd struct {
	common

	Node     string `name:"node" env:"NODE_NAME" required:"" placeholder:"NAME" help:"Name of this node."`
	RunDir   string `name:"run-dir" default:"/run/pailfs-csi" placeholder:"DIR" help:"What ends with the node's uptime, keys among it: on a tmpfs that outlives the driver."`
	CacheDir string `name:"cache-dir" default:"/var/cache/pailfs/csi" placeholder:"DIR" help:"Where each volume gets its cache: on a local disk."`
}

type controllerCmd struct{ common }

type versionCmd struct{}

// program is what a command may use of its surroundings.
type program struct {
	ctx            context.Context //nolint:containedctx // handed to one command, which runs until it ends
	stdout, stderr io.Writer
	environ        []string
}

// Run prints the version.
func (versionCmd) Run(p program) error {
	_, err := fmt.Fprintf(p.stdout, "pailfs-csi %s\n", version)
	return err
}

// Run serves a node.
func (c *nodeCmd) Run(p program) error {
	pailfs, err := c.program()
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Node: &csi.NodeConfig{ID: c.Node, Pailfs: pailfs, RunDir: c.RunDir, CacheDir: c.CacheDir, Environ: daemonEnvironment(p.environ)}})
}

// Run provisions.
func (c *controllerCmd) Run(p program) error {
	pailfs, err := c.program()
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Controller: &csi.ControllerConfig{Pailfs: pailfs}})
}

// serve answers calls until the program is told to end.
func (c *common) serve(p program, cfg csi.Config) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	cfg.Log, cfg.Version = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level})), version
	d, err := csi.Open(cfg)
	if err != nil {
		return err
	}
	l, err := csi.Listen(strings.TrimPrefix(c.Endpoint, "unix://"))
	if err != nil {
		return err
	}
	cfg.Log.Info("serving", "endpoint", c.Endpoint, "version", version)
	return d.Serve(p.ctx, l)
}

// program finds the program pailfs.
func (c *common) program() (string, error) {
	if c.Pailfs != "" {
		return c.Pailfs, nil
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), "pailfs")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("pailfs")
	if err != nil {
		return "", fmt.Errorf("the program pailfs is neither beside pailfs-csi nor on PATH: install both, or give --pailfs")
	}
	return path, nil
}

// roleVariables are what the cluster puts into the environment for RRSA. None is a secret.
var roleVariables = []string{"ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_STS_ENDPOINT", "ALIBABA_CLOUD_ROLE_SESSION_NAME"}

// daemonEnvironment is what daemons get of the driver's environment: where programs are, and what RRSA put there.
func daemonEnvironment(environ []string) (kept []string) {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if name == "PATH" || name == "HOME" || name == "TMPDIR" || slices.Contains(roleVariables, name) {
			kept = append(kept, e)
		}
	}
	return kept
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var code int
	if os.Getpid() == 1 {
		code = supervise(ctx, os.Stderr, os.Args, os.Environ())
	} else {
		code = run(os.Args[1:], program{ctx, os.Stdout, os.Stderr, os.Environ()})
	}
	stop()
	os.Exit(code)
}

// run does what the arguments say and returns the exit code.
func run(args []string, p program) int {
	var grammar cli
	answered := false
	parser := kong.Must(&grammar, kong.Name("pailfs-csi"), kong.Description("Volumes of pailfs for pods."),
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
		fmt.Fprintf(p.stderr, "pailfs-csi: %v; see pailfs-csi --help\n", err)
		return exitUsage
	}
	if err := parsed.Run(p); err != nil {
		fmt.Fprintf(p.stderr, "pailfs-csi: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return exitFailed
	}
	return 0
}
