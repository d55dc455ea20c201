package api

import (
	"encoding/json"
	"fmt"
	"time"
)

// The custom resource. It is cluster-scoped, one a node, named as the node and owned
// by it, so that it goes when the node goes. It has no spec; the agent writes status
// with the object (there is no status subresource).
const (
	Version           = "v1alpha1"
	APIVersion        = Group + "/" + Version
	KindNodeCache     = "PailfsNodeCache"
	ResourceNodeCache = "pailfsnodecaches"
)

// MaxDatasets is how many datasets a PailfsNodeCache holds, the largest in the cache first.
const MaxDatasets = 128

// NodeCacheStatus is the field status of a PailfsNodeCache. Bytes are counted, not
// estimated; the whole is renewed when something changed by 5 % or every 30 s.
type NodeCacheStatus struct {
	// ObservedAt is when the agent looked. One that is older than LeaseStaleSeconds
	// beyond its period, 70 s, is not to be believed.
	ObservedAt time.Time `json:"observedAt"`
	// Mounts are those that the agent looks after, by name.
	Mounts []MountStatus `json:"mounts,omitempty"`
	// Datasets are those that the agent was told of or pods of this node asked for, and of which
	// bytes are here or a pod is.
	Datasets []DatasetStatus `json:"datasets,omitempty"`
	// GPUs is nil where the agent does not look after any.
	GPUs *GPUStatus `json:"gpus,omitempty"`
}

// MountStatus is one mount of a node. Everything after Reason is as it was last known.
type MountStatus struct {
	// Name is the agent's name of it, a label's part.
	Name string `json:"name"`
	// Source is what is mounted, oss://BUCKET or oss://BUCKET/PREFIX.
	Source string `json:"source,omitempty"`
	// Path is where, on the node.
	Path     string `json:"path"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// CapacityBytes is how large its cache on SSD may be, UsedBytes what is in it, and
	// ReservedBytes what loaders hold of it, which eviction leaves alone.
	CapacityBytes int64 `json:"capacityBytes"`
	UsedBytes     int64 `json:"usedBytes"`
	ReservedBytes int64 `json:"reservedBytes"`
	// DirtyBytes and DirtyFiles are the write-back debt: written here and not in the
	// object store yet.
	DirtyBytes int64 `json:"dirtyBytes"`
	DirtyFiles int64 `json:"dirtyFiles"`
	// EgressBytesPerSecond is what the mount reads from the object store, averaged over a
	// minute, and EgressLimitBytesPerSecond the most that it may, 0 without a limit.
	EgressBytesPerSecond      int64 `json:"egressBytesPerSecond,omitempty"`
	EgressLimitBytesPerSecond int64 `json:"egressLimitBytesPerSecond,omitempty"`
}

// DatasetStatus is how much of one dataset a node has.
type DatasetStatus struct {
	// Name is normalized, Hash its DatasetHash.
	Name string `json:"name"`
	Hash string `json:"hash"`
	// Mount is the name of the mount that shows it.
	Mount string `json:"mount"`
	// BytesWarm are on the node's SSD, in versions that are still current. BytesTotal is
	// 0 if it is not known.
	BytesWarm  int64 `json:"bytesWarm"`
	BytesTotal int64 `json:"bytesTotal"`
	Files      int64 `json:"files"`
	FilesWarm  int64 `json:"filesWarm"`
}

// Fraction returns the share of the bytes that is here, 0 to 1, and 0 where the whole
// is not known.
func (d DatasetStatus) Fraction() float64 {
	if d.BytesTotal <= 0 {
		return 0
	}
	return min(1, float64(d.BytesWarm)/float64(d.BytesTotal))
}

// GPUStatus is a node's GPUs.
type GPUStatus struct {
	// State is Healthy, Degraded, Unknown or Unhealthy: the worst of them.
	State string `json:"state"`
	// Expected is how many there should be, Healthy how many may be given work.
	Expected int `json:"expected"`
	Healthy  int `json:"healthy"`
	// Reasons are codes of verdicts, such as XID79, the gravest first, at most 8.
	Reasons []string `json:"reasons,omitempty"`
}

// DecodeNodeCache reads the status of a PailfsNodeCache out of the object as
// Kubernetes' dynamic client gives it.
func DecodeNodeCache(object map[string]any) (NodeCacheStatus, error) {
	var s NodeCacheStatus
	raw, err := json.Marshal(object["status"])
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return NodeCacheStatus{}, fmt.Errorf("read %s: %w", KindNodeCache, err)
	}
	return s, nil
}
