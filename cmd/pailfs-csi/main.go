// Pailfs-csi is the driver with which pods in Kubernetes have volumes of pailfs.
//
//	pailfs-csi node --node NODE --endpoint /csi/csi.sock
//	pailfs-csi mounter --socket /run/pailfs-csi/mounter.sock
//	pailfs-csi controller --endpoint /csi/csi.sock
//	pailfs-csi version
//
// It reads its arguments and serves; what it does is in the package deploy/csi.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/csi"
	"github.com/pailfs/pailfs/deploy/csi/mounter"
	"github.com/pailfs/pailfs/deploy/csi/registration"
)

// version is set by the linker.
var version = "devel"

// cli is the grammar of the command line.
type cli struct {
	Node       nodeCmd            `cmd:"" help:"Mount volumes on the node that this runs on."`
	Mounter    mounterCmd         `cmd:"" help:"Start the daemons of a node's volumes, beside the node's service, and keep them while that is replaced."`
	Controller controllerCmd      `cmd:"" help:"Provision volumes and remove them."`
	Probe      probeCmd           `cmd:"" help:"Ask a driver whether it answers, for a container's probe."`
	Version    command.VersionCmd `cmd:"" help:"Show the version."`
}

// common are the flags of all.
type common struct {
	Pailfs   string `name:"pailfs" placeholder:"FILE" help:"The program pailfs; the one beside this, or on PATH, unless given."`
	LogLevel string `name:"log-level" enum:"debug,info,warn,error" default:"info" help:"Least important messages that are logged: debug (every call), info, warn (calls that fail) or error."`
}

// service are the flags of what an orchestrator calls.
type service struct {
	common

	Endpoint string `name:"endpoint" default:"/csi/csi.sock" placeholder:"SOCKET" help:"Unix socket to listen on, perhaps with unix:// before it."`
}

type nodeCmd struct {
	service

	Node     string `name:"node" env:"NODE_NAME" required:"" placeholder:"NAME" help:"Name of this node."`
	RunDir   string `name:"run-dir" default:"/run/pailfs-csi" placeholder:"DIR" help:"What ends with the node's uptime, keys among it: on a tmpfs that outlives the driver."`
	CacheDir string `name:"cache-dir" default:"/var/cache/pailfs/csi" placeholder:"DIR" help:"Where each volume gets its cache: on a local disk."`

	Mounter      string `name:"mounter" placeholder:"SOCKET" help:"Socket of the node's mounter (pailfs-csi mounter), which starts the daemons; without it they end with the driver's container."`
	Registration string `name:"registration" placeholder:"SOCKET" help:"Unix socket in kubelet's directory of plugins on which kubelet is told of the driver, and --endpoint is as the host names it; without it node-driver-registrar must do that."`
}

type mounterCmd struct {
	common

	Socket string `name:"socket" default:"/run/pailfs-csi/mounter.sock" placeholder:"SOCKET" help:"Unix socket to listen on."`
}

type controllerCmd struct{ service }

type probeCmd struct {
	Endpoint string        `name:"endpoint" default:"/csi/csi.sock" placeholder:"SOCKET" help:"Unix socket of the driver."`
	Timeout  time.Duration `name:"timeout" default:"5s" help:"How long to wait."`
}

// Run asks.
func (c *probeCmd) Run() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	return csi.Probe(ctx, strings.TrimPrefix(c.Endpoint, "unix://"))
}

// Run serves a node.
func (c *nodeCmd) Run(p command.Program) error {
	pailfs, err := c.program(p)
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Node: &csi.NodeConfig{
		ID: c.Node, Pailfs: pailfs, RunDir: c.RunDir, CacheDir: c.CacheDir, Environ: daemonEnvironment(p.Environ), Mounter: c.Mounter,
	}}, c.Registration)
}

// Run starts daemons.
func (c *mounterCmd) Run(p command.Program) error {
	pailfs, err := c.program(p)
	if err != nil {
		return err
	}
	log, err := c.log(p)
	if err != nil {
		return err
	}
	l, err := mounter.Listen(c.Socket)
	if err != nil {
		return err
	}
	log.Info("serving", "socket", c.Socket, "version", p.Version)
	ctx, stop := command.Interruptible()
	defer stop()
	return (&mounter.Server{Pailfs: pailfs, Log: log}).Serve(ctx, l)
}

// Run provisions.
func (c *controllerCmd) Run(p command.Program) error {
	pailfs, err := c.program(p)
	if err != nil {
		return err
	}
	return c.serve(p, csi.Config{Controller: &csi.ControllerConfig{Pailfs: pailfs}}, "")
}

// log returns where messages go.
func (c *common) log(p command.Program) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, err
	}
	return slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// serve answers calls until the program is told to end, and kubelet on the socket plugins, if it is not "".
func (c *service) serve(p command.Program, cfg csi.Config, plugins string) error {
	log, err := c.log(p)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Version = log, p.Version
	d, err := csi.Open(cfg)
	if err != nil {
		return err
	}
	endpoint := strings.TrimPrefix(c.Endpoint, "unix://")
	l, err := csi.Listen(endpoint)
	if err != nil {
		return err
	}
	interrupted, stop := command.Interruptible()
	defer stop()
	serving, ctx := errgroup.WithContext(interrupted)
	serving.Go(func() error { return d.Serve(ctx, l) })
	if plugins != "" {
		r, err := csi.Listen(plugins)
		if err != nil {
			stop()
			return errors.Join(err, serving.Wait())
		}
		serving.Go(func() error {
			return (&registration.Driver{Name: csi.Name, Endpoint: endpoint, Log: log}).Serve(ctx, r)
		})
	}
	log.Info("serving", "endpoint", c.Endpoint, "version", p.Version)
	return serving.Wait()
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
