// Package detached starts a daemon in the background and tells who waits how that went.
//
// [Start] starts this program again in a session of its own, with two pipes: secrets go down the
// one, so that they are not in the daemon's environment, notices and the outcome come up the other.
// The child finds its ends with [LinkToParent]; in a process without a parent the [Link] is nil,
// and its methods do nothing.
package detached
