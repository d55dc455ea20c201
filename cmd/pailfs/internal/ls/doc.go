// Package ls is the command pailfs ls: the mounts of this host and how each does, also those that
// are dead or hang.
package ls
