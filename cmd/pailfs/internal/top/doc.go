// Package top is the command pailfs top: what the mounts of this host do in a second, again and
// again.
//
// A watcher looks at the mounts and makes a [Frame] of what it saw and what it saw before. A frame
// is printed: as a line a mount for a pipe (lines.go), on a screen that scrolls (screen.go), as
// text once (text.go), or as JSON. A mount that hangs is looked at by one process at most, and one
// that goes away and comes back goes on where it was.
package top
