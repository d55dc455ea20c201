// Package rates makes rates out of counters: what a mount did in a second, between two answers of
// its daemon.
//
//	r, ok := rates.Between(&before, &after)
//
// It computes, and reads and writes nothing.
package rates
