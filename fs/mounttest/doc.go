// Package mounttest is what test programs that mount for real have in common:
// a mount namespace of their own, a buffer for what their children print, and a mount that hangs.
//
// A test program that is killed, by a deadline or by a hand, leaves whatever it
// had mounted. [Main] runs the tests in a second process in a private mount
// namespace: the kernel takes the mounts down with the last process in it, and
// the machine never sees them.
package mounttest
