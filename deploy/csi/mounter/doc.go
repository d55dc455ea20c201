// Package mounter starts the daemons of volumes in a process that outlives the driver, so that a driver that is upgraded
// takes no mount along.
//
// The driver sends the arguments of a command of pailfs and the lock of its volume to a unix socket ([Run]); the
// mounter ([Server]) runs the command, which holds the lock as long as it runs, and answers with what it said. A daemon that
// the command left becomes a child of the mounter. The mounter ends its daemons when it is told to end, and
// waits until they have uploaded what was written.
//
// It knows nothing of volumes, keys or Kubernetes, for what is in it can be upgraded on a drained node alone.
package mounter
