// Package measures counts and times the requests of the kernel, for status and for
// Prometheus. What the hot path touches is an atomic or an observer taken out beforehand.
package measures
