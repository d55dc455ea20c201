package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/deploy/node"
)

// nodeCmd is `pailfs-kube node`.
type nodeCmd struct {
	cluster
	Node      string   `name:"node" env:"NODE_NAME" help:"The Node that this runs on."`
	Namespace string   `name:"namespace" env:"POD_NAMESPACE" help:"Where the agent's lease lies."`
	Mounts    []string `name:"mount" env:"PAILFS_MOUNTS" placeholder:"NAME=PATH" help:"A mount to look after; NAME becomes the label pailfs.io/mount.NAME."`
	Datasets  []string `name:"dataset" env:"PAILFS_DATASETS" placeholder:"BUCKET/PREFIX" help:"A dataset whose bytes in the cache are counted though no pod here names it."`
	GPU       bool     `name:"gpu" default:"true" negatable:"" help:"Look after GPUs too."`

	ProbeEvery    time.Duration `name:"probe-every" default:"1s" help:"Time between two probes of a mount."`
	ProbePatience time.Duration `name:"probe-patience" default:"1.5s" help:"How long a mount may take to answer."`
	MeasureEvery  time.Duration `name:"measure-every" default:"30s" help:"Least time between two counts of a dataset's bytes in the cache."`
	EvictMount    time.Duration `name:"evict-after" default:"1m" help:"How long a mount may be away before pods are evicted; 0s never evicts."`
	EvictGPU      time.Duration `name:"evict-gpu-after" default:"2m" help:"How long a GPU may be unwell before pods are evicted; 0s never evicts."`
	HTTP          string        `name:"http" default:"127.0.0.1:9322" placeholder:"HOST:PORT" help:"Answer /healthz and /metrics here; empty answers nowhere."`
}

// Help gives examples.
func (nodeCmd) Help() string {
	return `Writes the conditions pailfs.io/MountReady and pailfs.io/GPUHealthy, taints while they are not well, labels, a Lease and one PailfsNodeCache, and nothing else. The Node is left as it is when the agent ends. deploy/node/DESIGN.md says what each means.

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments.

Examples:

	pailfs-kube node --mount data=/mnt/data --dataset imagenet/train
	pailfs-kube node --kubeconfig ~/.kube/config --node n1 --namespace pailfs-system --mount data=/mnt/data --no-gpu`
}

// healthAge is how long a turn of the agent may be ago for it to count as well.
const healthAge = time.Minute

// Run runs the agent until it is interrupted.
func (c *nodeCmd) Run(p command.Program) error {
	cfg := node.Config{
		Node: c.Node, Namespace: c.Namespace, Datasets: c.Datasets,
		ProbeEvery: c.ProbeEvery, ProbePatience: c.ProbePatience, MeasureEvery: c.MeasureEvery,
		EvictMount: c.EvictMount, EvictGPU: c.EvictGPU, Log: logTo(p),
	}
	for _, m := range c.Mounts {
		name, path, ok := strings.Cut(m, "=")
		if !ok {
			return command.Usage(fmt.Errorf("--mount %q: want NAME=PATH, as in data=/mnt/data", m))
		}
		cfg.Mounts = append(cfg.Mounts, node.Mount{Name: name, Path: path})
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Statfs = []string{self, "statfs"}
	if cfg.Pailfs, err = p.Beside("pailfs", "install both"); err != nil {
		return err
	}
	if c.GPU {
		gpu, err := p.Beside("pailfs-gpu", "install both")
		if err != nil {
			return fmt.Errorf("%w, or give --no-gpu", err)
		}
		cfg.GPU = []string{gpu, "gpu", "--json", "--watch"}
	}
	// An agent has little to say; five requests a second let it say it at once.
	config, err := c.connect(5)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	caches, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	agent, err := node.New(cfg, client, caches)
	if err != nil {
		return command.Usage(err)
	}
	ctx, stop := command.Interruptible()
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	if c.HTTP != "" {
		l, err := net.Listen("tcp", c.HTTP)
		if err != nil {
			return httpError(c.HTTP, err)
		}
		group.Go(func() error { return serve(ctx, l, agent) })
	}
	group.Go(func() error { return agent.Run(ctx) })
	return group.Wait()
}

// httpError says why nothing is served at an address, and what helps. Only an address that
// is none is the user's mistake: a port may be free when the agent is started again.
func httpError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--http %s: another program listens there: end it, or give another port", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("--http %s: %w: give an address of this host and a port that may be used", address, err)
	}
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return command.Usage(fmt.Errorf("--http %s: %w: want HOST:PORT, as in 127.0.0.1:9322", address, err))
	}
	return fmt.Errorf("--http %s: %w", address, err)
}

// serve answers whether the agent turned lately, and its metrics.
func serve(ctx context.Context, l net.Listener, agent *node.Agent) error {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{agent, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return errors.Join(fmt.Errorf("register metrics: %w", err), l.Close())
		}
	}
	began := time.Now()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		last := agent.Turned()
		if last.IsZero() {
			last = began
		}
		if age := time.Since(last); age > healthAge {
			http.Error(w, fmt.Sprintf("the agent has not turned for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // who asked has gone if it fails
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // nothing waits for what it says
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve --http %s: %w", l.Addr(), err)
	}
	return nil
}
