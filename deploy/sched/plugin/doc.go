// Package plugin is deploy/sched as a plugin of kube-scheduler's framework.
//
// It carries objects in and decisions out. Informers of nodes and pods, and a watch of
// PailfsNodeCaches, keep a [sched.Cluster] (watch.go); a scheduling cycle asks it (cycle.go); what was
// refused comes back when that may have changed (hints.go for what the scheduler's queue
// hears of, wake.go for the rest). It is a module of its own, because it needs
// k8s.io/kubernetes.
package plugin
