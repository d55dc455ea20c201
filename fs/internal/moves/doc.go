// Package moves tells whether a path may have meant another directory since some moment,
// because it or a directory above it was renamed.
//
// It holds the lock under which names change, and knows nothing of what is named.
package moves
