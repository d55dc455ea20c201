// Package kube reads into deploy/sched what Kubernetes says: pods, nodes and
// PailfsNodeCaches. The scheduler plugin and the extender share it, so that a pod means the
// same to both.
package kube
