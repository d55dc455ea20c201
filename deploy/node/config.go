package node

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// Mount is a mount that the agent looks after.
type Mount struct {
	// Name is short and becomes part of a label.
	Name string
	// Path is where it is mounted.
	Path string
}

// Config is the configuration of an [Agent]. Zero durations are the defaults that
// are named with them.
type Config struct {
	// Node is the Node's name, Namespace where the Lease lies.
	Node, Namespace string
	Mounts          []Mount
	// Datasets are looked after whether a pod asks for them or not.
	Datasets []string
	// Statfs is the program and its arguments, before the mount's path, that answers as
	// [ServeStatfs] does.
	Statfs []string
	// Pailfs is the program pailfs.
	Pailfs string
	// GPU is the command that prints readings as `pailfs gpu --json --watch` does; empty
	// means that GPUs are not looked after.
	GPU []string
	// ProbeEvery (1s) is the time between two calls of statfs, ProbePatience (1.5s)
	// how long one may take.
	ProbeEvery, ProbePatience time.Duration
	// FactsEvery (10s) is the time between two questions to a daemon.
	FactsEvery time.Duration
	// MeasureEvery (30s) is the least time between two measurements of a dataset. One
	// that took long is repeated less often.
	MeasureEvery time.Duration
	// EvictMount is after how long without its mount a node gets the effect NoExecute
	// too, EvictGPU the same without its GPUs. Zero means never.
	EvictMount, EvictGPU time.Duration
	Log                  *slog.Logger
}

// label is what Kubernetes takes after a label's slash, less what pailfs adds.
var label = regexp.MustCompile(`^[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,55}[a-zA-Z0-9])?$`)

// check refuses what cannot work and fills in defaults.
func (c *Config) check() error {
	switch {
	case c.Node == "":
		return fmt.Errorf("no node is named: set --node or NODE_NAME to the Node that this runs on")
	case c.Namespace == "":
		return fmt.Errorf("no namespace is named: set --namespace or POD_NAMESPACE to where the agent's lease may lie")
	case len(c.Mounts) == 0:
		return fmt.Errorf("no mount is named: give --mount NAME=PATH")
	}
	seen := map[string]bool{}
	for _, m := range c.Mounts {
		switch {
		case !label.MatchString(m.Name):
			return fmt.Errorf("mount name %q: want letters, digits, -, _ and ., at most 57, as in data", m.Name)
		case !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) != m.Path:
			return fmt.Errorf("mount path %q: want an absolute path without . or .. in it, as in /mnt/data", m.Path)
		case seen[m.Name]:
			return fmt.Errorf("mount name %q is given twice: give each mount a name of its own", m.Name)
		}
		seen[m.Name] = true
	}
	for i, d := range c.Datasets {
		name, err := api.NormalizeDataset(d)
		if err != nil {
			return err
		}
		c.Datasets[i] = name
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"probe interval", &c.ProbeEvery, time.Second},
		{"probe patience", &c.ProbePatience, 1500 * time.Millisecond},
		{"status interval", &c.FactsEvery, 10 * time.Second},
		{"measuring interval", &c.MeasureEvery, 30 * time.Second},
		{"mount grace", &c.EvictMount, 0},
		{"GPU grace", &c.EvictGPU, 0},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%s %s: want no less than 0s", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
