// Package mountpoint looks at mount points from outside: what is mounted where,
// whether its daemon lives, who holds it, and how it is taken away.
//
// Everything here works without the daemon and must not wait for one: a mount
// whose daemon is dead or stuck answers no call, so every call into a mount has a
// deadline and is made by a child, and a path is resolved without touching the mount itself.
package mountpoint
