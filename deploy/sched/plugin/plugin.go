package plugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/pailfs/pailfs/deploy/sched"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "Pailfs"

// Args is the plugin's pluginConfig. Zero values are the defaults.
type Args struct {
	// StarveAfterSeconds is how long a pod may be held to the nodes that suit its dataset
	// before every healthy node will do; 30 if 0.
	StarveAfterSeconds int `json:"starveAfterSeconds,omitempty"`
	// GangWaitSeconds is how long nodes may be kept for a gang that is not placed whole yet;
	// 30 if 0.
	GangWaitSeconds int `json:"gangWaitSeconds,omitempty"`
}

// Plugin places pods that read a dataset through a pailfs mount, and gangs.
type Plugin struct {
	handle  fwk.Handle
	cluster *sched.Cluster
	gangs   *sched.Gangs
	starve  time.Duration
	// woken says that something changed which may let refused pods in, news that it is of
	// nodes.
	woken chan struct{}
	news  atomic.Bool

	mu      sync.Mutex
	refused map[types.UID]*attempt
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New is the plugin's factory.
func New(ctx context.Context, configuration runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	var args Args
	if err := frameworkruntime.DecodeInto(configuration, &args); err != nil {
		return nil, fmt.Errorf("read pluginConfig of %s: %w", Name, err)
	}
	if args.StarveAfterSeconds < 0 || args.GangWaitSeconds < 0 {
		return nil, fmt.Errorf("pluginConfig of %s: starveAfterSeconds %d, gangWaitSeconds %d: want seconds, or 0 for the default",
			Name, args.StarveAfterSeconds, args.GangWaitSeconds)
	}
	seconds := func(n int) time.Duration {
		if n == 0 {
			n = 30
		}
		return time.Duration(n) * time.Second
	}
	p := &Plugin{handle: handle, starve: seconds(args.StarveAfterSeconds), woken: make(chan struct{}, 1), refused: map[types.UID]*attempt{}}
	p.cluster = sched.New(sched.Config{StarveAfter: p.starve})
	p.gangs = sched.NewGangs(p.cluster, seconds(args.GangWaitSeconds))
	if err := p.watch(ctx); err != nil {
		return nil, err
	}
	go p.wake(ctx)
	return p, nil
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }
