// Package api is what the node agent writes into Kubernetes and schedulers read
// there: names of conditions, taints, labels and annotations, and the custom
// resource PailfsNodeCache. Node objects and that resource are the only contract
// between the two.
//
// It imports nothing, neither of pailfs nor of Kubernetes, so that whoever
// schedules may use it.
package api
