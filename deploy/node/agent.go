package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/pailfs/pailfs/deploy/pause"
)

// Agent keeps a Node, its PailfsNodeCache and its Lease as they should be. It is a
// [prometheus.Collector] of what METRICS.md lists.
type Agent struct {
	cfg    Config
	client kubernetes.Interface
	caches dynamic.Interface

	mounts   []*mountWatcher
	datasets *datasets
	gpus     *gpus
	metrics  *metrics
	// wake says that something changed.
	wake chan struct{}
	mu   struct {
		sync.Mutex
		// turned is when the agent last finished a turn.
		turned time.Time
	}
}

// New returns an agent, or says what is wrong with its configuration.
func New(cfg Config, client kubernetes.Interface, caches dynamic.Interface) (*Agent, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, client: client, caches: caches, wake: make(chan struct{}, 1), metrics: newMetrics()}
	for _, m := range cfg.Mounts {
		a.mounts = append(a.mounts, &mountWatcher{mount: m, cfg: &a.cfg, probes: a.metrics.probes.WithLabelValues(m.Name)})
	}
	a.datasets = newDatasets(&a.cfg, a.mounts)
	if len(cfg.GPU) > 0 {
		a.gpus = &gpus{command: cfg.GPU}
	}
	return a, nil
}

const (
	// turnEvery is how often the agent looks whether something is due.
	turnEvery = time.Second
	// callPatience bounds a turn's conversation with the API server.
	callPatience = 10 * time.Second
	// minBackoff and maxBackoff bound how long a failing API server is left alone.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// Run runs until ctx ends, and then leaves everything as it is: who starts the agent
// again within [api.LeaseStaleSeconds] is not noticed.
func (a *Agent) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, m := range a.mounts {
		wg.Go(func() { m.run(ctx, a.news) })
	}
	wg.Go(func() { a.datasets.run(ctx, a.news) })
	if a.gpus != nil {
		wg.Go(func() { a.gpus.run(ctx, a.news) })
	}
	nodes := &nodeWriter{nodes: a.client.CoreV1().Nodes(), name: a.cfg.Node}
	w := &writers{
		node:  nodes,
		cache: &cacheWriter{caches: a.caches.Resource(NodeCaches), name: a.cfg.Node},
		lease: &leaseWriter{leases: a.client.CoordinationV1().Leases(a.cfg.Namespace), node: a.cfg.Node},
	}
	pods := make(chan struct{}, 1)
	seen, err := watch(ctx, a.client, &a.cfg, func(n *v1.Node) { nodes.seen(n); a.news() }, func() {
		select {
		case pods <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer seen.close()
	defer cancel()
	a.turns(ctx, w, pods, func() { a.datasets.ask(seen.datasets(a.cfg.Node)) })
	return nil
}

// news says that something changed.
func (a *Agent) news() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// turns takes turns until ctx ends. After one that failed it rests, longer each
// time.
func (a *Agent) turns(ctx context.Context, w *writers, pods <-chan struct{}, podsChanged func()) {
	ticks := time.NewTicker(turnEvery)
	defer ticks.Stop()
	backoff := minBackoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-pods:
			podsChanged()
			continue
		case <-a.wake:
		case <-ticks.C:
		}
		if o, ok := a.observe(time.Now()); ok {
			called, cancel := context.WithTimeout(ctx, callPatience)
			err := w.turn(called, o, a)
			cancel()
			a.metrics.turn(err)
			switch {
			case err == nil:
				backoff = minBackoff
			case ctx.Err() != nil:
				return
			case apierrors.IsConflict(err):
				// Somebody else wrote the Node meanwhile: look again.
				a.news()
			default:
				a.cfg.Log.Warn("the API server does not take what the node has to say", "error", err, "again_in", backoff)
				if !pause.For(ctx, time.Duration(float64(backoff)*(0.5+rand.Float64()))) {
					return
				}
				backoff = min(2*backoff, maxBackoff)
			}
		}
		a.mu.Lock()
		a.mu.turned = time.Now()
		a.mu.Unlock()
	}
}

// Turned returns when the agent last finished a turn; one that hangs does not.
func (a *Agent) Turned() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.turned
}

// observe returns what is known, if every mount was probed.
func (a *Agent) observe(now time.Time) (*observation, bool) {
	o := &observation{at: now}
	for _, m := range a.mounts {
		s, known := m.state()
		if !known {
			return nil, false
		}
		o.mounts = append(o.mounts, s)
	}
	o.datasets = a.datasets.report()
	if a.gpus != nil {
		o.gpus = a.gpus.state(now)
	}
	return o, true
}

// writers write what Kubernetes is told.
type writers struct {
	node  *nodeWriter
	cache *cacheWriter
	lease *leaseWriter
	// recalled says that what the cache's object named was remembered.
	recalled bool
}

// turn writes what is due. One object that cannot be written does not hold up the
// others.
func (w *writers) turn(ctx context.Context, o *observation, a *Agent) error {
	n, err := w.node.current(ctx)
	if err != nil {
		return err
	}
	err = w.node.write(ctx, n, judge(o, n.Labels, &a.cfg), o.at)
	err = errors.Join(err, w.lease.renew(ctx, n, o.at))
	if !w.recalled {
		names, cerr := w.cache.remembered(ctx)
		if cerr != nil {
			return errors.Join(err, cerr)
		}
		w.recalled = true
		a.datasets.remember(names)
	}
	if s := statusOf(o); w.cache.due(s, o.at) {
		err = errors.Join(err, w.cache.write(ctx, n, s, o.at))
	}
	return err
}
