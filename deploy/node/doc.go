// Package node tells Kubernetes what a node's pailfs mounts, caches and GPUs are.
//
// An [Agent] runs on every node. For each mount one child process calls statfs
// (statfs.go), because a mount whose daemon hangs hangs whoever asks; the programs
// pailfs and pailfs-gpu are asked for the rest (facts.go, gpus.go). What was observed
// becomes what the Node should say by a pure function (judge.go), and what is written
// is the difference to what it says (patch.go): conditions and taints at once, labels
// slowly, bytes into a PailfsNodeCache (nodecache.go), and a Lease that says that the
// agent lives (lease.go). [Controller] marks the nodes of agents that do not.
//
// The state is on the Node, not in the agent: one that starts again goes on. It removes
// nothing that is not pailfs's. Names are in the package api; DESIGN.md says why things
// are as they are.
//
// The package knows pailfs by its commands alone, and needs no cgo.
package node
