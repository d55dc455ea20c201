// Package safepath says who else could put something else in place of a path: a file
// of keys, a log, a cache. It looks at every directory on the way and every link that
// is followed, as the kernel does. What it says is true for the moment.
package safepath
