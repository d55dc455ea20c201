// Package callers knows who made a request of the kernel: whether it is being killed, which
// ends the request; what it may beside its user; what a file loses that it changes.
//
// It reads /proc, and knows no file of the mount.
package callers
