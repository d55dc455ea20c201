// Package sessionstore keeps the state of loader sessions for the daemon that follows: [Node] in files
// beside the cache of this node, [Shared] in the bucket, in the directory that the loader names, for
// other nodes.
//
// Both implement keep.Store. They do not understand what they keep; whose session may be kept
// where, package rights says.
package sessionstore
