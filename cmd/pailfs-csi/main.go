// Pailfs-csi is the driver with which pods in Kubernetes have volumes of pailfs.
//
//	pailfs-csi node --node NODE --endpoint /csi/csi.sock
//	pailfs-csi controller --endpoint /csi/csi.sock
//	pailfs-csi version
//
// It reads its arguments and serves; what it does is in the package deploy/csi.
package main

import (
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/csi"
)

// version is set by the linker.
var version = "devel"

// cli is the grammar of the command line.
type cli struct {
	Node       nodeCmd            `cmd:"" help:"Mount volumes on the node that this runs on."`
	Controller controllerCmd      `cmd:"" help:"Provision volumes and remove them."`
	Version    command.VersionCmd `cmd:"" help:"Show the version."`
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

// Run serves a node.
func (c *nodeCmd) Run(p command.Program) error {
	pailfs, err := c.program(p)
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Node: &csi.NodeConfig{ID: c.Node, Pailfs: pailfs, RunDir: c.RunDir, CacheDir: c.CacheDir, Environ: daemonEnvironment(p.Environ)}})
}

// Run provisions.
func (c *controllerCmd) Run(p command.Program) error {
	pailfs, err := c.program(p)
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Controller: &csi.ControllerConfig{Pailfs: pailfs}})
}

// serve answers calls until the program is told to end.
func (c *common) serve(p command.Program, cfg csi.Config) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	cfg.Log, cfg.Version = slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level})), p.Version
	d, err := csi.Open(cfg)
	if err != nil {
		return err
	}
	l, err := csi.Listen(strings.TrimPrefix(c.Endpoint, "unix://"))
	if err != nil {
		return err
	}
	cfg.Log.Info("serving", "endpoint", c.Endpoint, "version", p.Version)
	ctx, stop := command.Interruptible()
	defer stop()
	return d.Serve(ctx, l)
}

// program finds the program pailfs.
func (c *common) program(p command.Program) (string, error) {
	if c.Pailfs != "" {
		return c.Pailfs, nil
	}
	return p.Beside("pailfs", "install both, or give --pailfs")
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
	if os.Getpid() == 1 {
		ctx, stop := command.Interruptible()
		code := supervise(ctx, os.Stderr, os.Args, os.Environ())
		stop()
		os.Exit(code)
	}
	os.Exit(run(command.Started("pailfs-csi", version)))
}

// run does what the arguments say and returns the exit code.
func run(p command.Program) int { return p.Run("Volumes of pailfs for pods.", new(cli)) }
