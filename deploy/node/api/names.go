package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Group is the prefix of everything that is pailfs's.
const Group = "pailfs.io"

// Conditions of a Node. Their status is True, False or Unknown as for any other.
// A node without them has no agent: nothing is known of its mounts.
const (
	// ConditionMountReady is True if every mount of the node answers.
	ConditionMountReady = Group + "/MountReady"
	// ConditionGPUHealthy is True if every GPU of the node works, Unknown with the
	// reason NoGPU where there is none.
	ConditionGPUHealthy = Group + "/GPUHealthy"
)

// Reasons of conditions that programs may compare. GPUHealthy has, besides, the codes of
// deploy/gpu's verdicts, such as XID79.
const (
	// ReasonReady and ReasonHealthy go with True.
	ReasonReady   = "Ready"
	ReasonHealthy = "Healthy"
	// ReasonDegraded goes with True: reads work, slower.
	ReasonDegraded = "Degraded"
	// ReasonNotMounted, ReasonDead, ReasonStuck and ReasonFailed go with
	// MountReady False: nothing is mounted, the daemon is dead, it does not answer,
	// it answers with an error.
	ReasonNotMounted = "NotMounted"
	ReasonDead       = "DaemonDead"
	ReasonStuck      = "DaemonStuck"
	ReasonFailed     = "ProbeFailed"
	// ReasonAgentSilent goes with Unknown: the agent's lease is stale.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNoGPU goes with GPUHealthy Unknown where nothing is expected.
	ReasonNoGPU = "NoGPU"
	// ReasonUnreadable goes with GPUHealthy Unknown where GPUs are expected.
	ReasonUnreadable = "Unreadable"
)

// Taints of a Node. Each comes with the effect NoSchedule at once and, when it has
// lasted for the agent's grace, with NoExecute as well.
const (
	// TaintMountUnready says that MountReady is not True.
	TaintMountUnready = Group + "/mount-unready"
	// TaintGPUUnhealthy says that GPUs are expected and GPUHealthy is not True.
	TaintGPUUnhealthy = Group + "/gpu-unhealthy"
)

// Labels of a Node. The agent owns both prefixes: it removes what it has not set.
const (
	// LabelMountPrefix is followed by a mount's name; the value is LabelReady, and the label
	// is absent while the mount does not answer.
	LabelMountPrefix = Group + "/mount."
	LabelReady       = "ready"
	// LabelDatasetPrefix is followed by DatasetHash; the value is LabelWarm or
	// LabelPartial.
	LabelDatasetPrefix = Group + "/ds."
	// LabelWarm: at least WarmEnter of the bytes are in the node's cache, and since
	// then never less than WarmLeave.
	LabelWarm = "warm"
	// LabelPartial: some bytes are, or how many there are in all is not known.
	LabelPartial = "partial"
	// LabelAgent marks the agents' leases.
	LabelAgent = Group + "/agent"
)

// The two thresholds of LabelWarm, shares of the dataset's bytes.
const (
	WarmEnter = 0.80
	WarmLeave = 0.60
)

// AnnotationDataset is the annotation of a Pod, and of the pod template of whatever
// makes pods, that names the dataset that it reads, as NormalizeDataset understands it.
// A dataset may be named by a label of the same key as well, where its name is a label's
// value; the annotation goes before.
const AnnotationDataset = Group + "/dataset"

// LeasePrefix and a node's name make the name of its agent's Lease, which lies in the
// agent's namespace.
const LeasePrefix = "pailfs-"

// LeaseStaleSeconds is after how long without renewal an agent counts as silent.
const LeaseStaleSeconds = 40

// hashLength is how many hexadecimal digits of a hash go into a label.
const hashLength = 8

// NormalizeDataset returns the name of a dataset, BUCKET or BUCKET/PREFIX, without
// what may be written around it: oss:// before, slashes after.
func NormalizeDataset(name string) (string, error) {
	n := strings.Trim(strings.TrimPrefix(strings.TrimSpace(name), "oss://"), "/")
	for part := range strings.SplitSeq(n, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' }) {
			return "", fmt.Errorf("dataset %q: want BUCKET or BUCKET/PREFIX, as in imagenet/train", name)
		}
	}
	return n, nil
}

// DatasetHash returns the first 8 hexadecimal digits of the SHA-256 of a normalized
// name. Two datasets may share them: a label is a hint, PailfsNodeCache has whole names.
func DatasetHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// DatasetLabel returns the key of a dataset's label.
func DatasetLabel(name string) string { return LabelDatasetPrefix + DatasetHash(name) }

// MountLabel returns the key of a mount's label.
func MountLabel(mount string) string { return LabelMountPrefix + mount }

// LeaseName returns the name of the Lease of a node's agent.
func LeaseName(node string) string { return LeasePrefix + node }
