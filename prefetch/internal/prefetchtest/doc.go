// Package prefetchtest has the cache, the names and the rights that tests of prefetching
// put in the place of the real ones.
package prefetchtest
