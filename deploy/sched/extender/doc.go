// Package extender is deploy/sched for a stock kube-scheduler: an HTTP extender that
// filters and ranks nodes. It sees the nodes that the scheduler chose to look at, and no others,
// which the plugin does not suffer from; see deploy/sched/DESIGN.md.
package extender
