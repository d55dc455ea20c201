// Package child makes calls that may never return in a process of their own.
//
//	err := child.Run(ctx, "statfs", path, nil, &answer)
//
// A call into a mount whose daemon has taken the request and does not answer waits where not even
// SIGKILL reaches it, and a process with such a thread does not end. So the program starts itself
// again, waits for the answer as long as its context lasts, and leaves the other behind: that ends
// by itself soon after, or with the mount.
//
// The program begins with [Serve], which makes the call where it is such a child. A child needs
// neither a shell nor /dev/null, which an image made from scratch has not: it has pipes, and the
// running program is at /proc/self/exe. It gets no environment, so no keys.
package child
