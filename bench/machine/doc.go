// Package machine knows the computer that a measurement runs on: what it is,
// what its processes use, and how to empty the kernel's caches.
//
// Everything comes from /proc and system calls. Figures of other processes are
// read by pid, so that a daemon needs no hook of its own to be measured.
package machine
