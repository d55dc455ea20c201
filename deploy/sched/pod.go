package sched

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// Annotations of a pod that this package reads besides [api.AnnotationDataset].
const (
	// AnnotationMount names the only mount through which the pod reads; any that shows
	// the dataset does without it.
	AnnotationMount = api.Group + "/mount"
	// AnnotationBytes is how large the dataset is, as in 150Gi, for as long as no node
	// knows.
	AnnotationBytes = api.Group + "/dataset-bytes"
	// AnnotationShard says which part of the dataset the pod reads. Pods of one shard
	// go to the same nodes while it is cold, those of others to others.
	AnnotationShard = api.Group + "/shard"
	// AnnotationGangSize is how many pods are placed together or not at all.
	AnnotationGangSize = api.Group + "/gang-size"
	// AnnotationGang names the gang; without it the pods of one controller are one.
	AnnotationGang = api.Group + "/gang"
)

// maxGang bounds a gang: more pods than a large cluster has nodes are a mistake.
const maxGang = 10000

// Resources are amounts by Kubernetes' name: CPU in thousandths, memory in bytes,
// everything else in pieces. A share of a GPU or a MIG instance is a resource of its
// own name and counts as the device plugin counts it.
type Resources map[string]int64

// Times returns how many pods that want r fit into free.
func (r Resources) Times(free Resources) int {
	n := int64(math.MaxInt32)
	for name, want := range r {
		if want > 0 {
			n = min(n, max(0, free[name])/want)
		}
	}
	return int(n)
}

// Pod is what placement needs to know of a pod.
type Pod struct {
	// Key is the pod's UID, Name its namespace and name for messages.
	Key, Name string
	// Dataset is normalized, and empty if the pod reads none.
	Dataset string
	// Mount, Shard and Bytes are as the annotations say, or zero.
	Mount, Shard string
	Bytes        int64
	// Wants are the pod's requests.
	Wants Resources
	// Claims says that it has claims of dynamic resource allocation, which are not
	// among Wants and left to their own plugin.
	Claims bool
	// Gang names the pod's gang, and is empty if it has none. GangSize is then how many
	// pods belong together.
	Gang     string
	GangSize int
}

// Meta is the part of a pod's metadata that this package reads.
type Meta struct {
	UID, Namespace, Name string
	Annotations, Labels  map[string]string
	// Controller is the UID of what made the pod, or empty.
	Controller string
}

// ParsePod reads what the annotations say. ok is false if they say nothing: the pod is
// left alone. An error is for the pod's owner.
func ParsePod(m Meta, wants Resources, claims bool) (p Pod, ok bool, err error) {
	dataset, named := m.Annotations[api.AnnotationDataset]
	if !named {
		dataset, named = m.Labels[api.AnnotationDataset]
	}
	size, ganged := m.Annotations[AnnotationGangSize]
	if !named && !ganged {
		return Pod{}, false, nil
	}
	p = Pod{Key: m.UID, Name: m.Namespace + "/" + m.Name, Mount: m.Annotations[AnnotationMount], Shard: m.Annotations[AnnotationShard], Wants: wants, Claims: claims}
	if named {
		if p.Dataset, err = api.NormalizeDataset(dataset); err != nil {
			return p, true, fmt.Errorf("annotation %s: %w", api.AnnotationDataset, err)
		}
	}
	if text, ok := m.Annotations[AnnotationBytes]; ok {
		bytes, err := humanize.ParseBytes(text)
		if err != nil || bytes > math.MaxInt64 {
			return p, true, fmt.Errorf("annotation %s: %q is not a number of bytes: write, for example, 150Gi", AnnotationBytes, text)
		}
		p.Bytes = int64(bytes)
	}
	if !ganged {
		return p, true, nil
	}
	p.GangSize, err = strconv.Atoi(size)
	if err != nil || p.GangSize < 1 || p.GangSize > maxGang {
		return p, true, fmt.Errorf("annotation %s: %q is not a number of pods from 1 to %d: write how many the job has", AnnotationGangSize, size, maxGang)
	}
	p.Gang = m.Annotations[AnnotationGang]
	if p.Gang == "" {
		p.Gang = m.Controller
	}
	if p.Gang == "" {
		return p, true, fmt.Errorf("annotation %s: the pod has no controller: name its gang with the annotation %s", AnnotationGangSize, AnnotationGang)
	}
	p.Gang = m.Namespace + "/" + p.Gang
	return p, true, nil
}

// gpus reports whether p uses a GPU, whole, in part or claimed.
func (p Pod) gpus() bool {
	for name, n := range p.Wants {
		if n > 0 && isGPU(name) {
			return true
		}
	}
	return p.Claims
}

// isGPU reports whether a resource is a GPU or a part of one: nvidia.com/gpu,
// nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, aliyun.com/gpu-mem.
func isGPU(resource string) bool {
	_, kind, ok := strings.Cut(resource, "/")
	return ok && (strings.HasPrefix(kind, "gpu") || strings.HasPrefix(kind, "mig-"))
}

// devices returns the names of what r has of extended resources, sorted.
func (r Resources) devices() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if r[name] > 0 && strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// String says what is asked for: "2 nvidia.com/gpu, 1.5 cpu, 64 GiB memory".
func (r Resources) String() string {
	var parts []string
	for _, name := range r.devices() {
		parts = append(parts, fmt.Sprintf("%d %s", r[name], name))
	}
	if cpu := r["cpu"]; cpu > 0 {
		parts = append(parts, fmt.Sprintf("%g cpu", float64(cpu)/1000))
	}
	if memory := r["memory"]; memory > 0 {
		parts = append(parts, humanize.IBytes(uint64(memory))+" memory")
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
