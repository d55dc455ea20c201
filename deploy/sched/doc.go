// Package sched decides which node should run a pod that reads a dataset through
// a pailfs mount.
//
// A [Cluster] is what is known of the nodes: the conditions and the custom resource
// that the node agents write (deploy/node/api), and what has been promised to pods
// that were placed. From it follow, for one [Pod]: the nodes that come into question
// ([Cluster.Choose]), whether a node may run it ([Cluster.Check]), how good a node is
// ([Cluster.Score]), and the bytes that it will fill there ([Cluster.Hold]). [Gangs]
// keeps pods together that are worth nothing alone.
//
// Nothing here knows Kubernetes' types or makes a request: the scheduler plugin
// (plugin/, a module of its own) and the extender (cmd/pailfs-kube) carry objects in
// and decisions out. A pod without a dataset is left alone. DESIGN.md has the reasons.
package sched
