// Package names makes trees of many names and lists them: as a manifest for
// pailfs, as files on a disk, and in the memory of a go-fuse program, so that
// whatever walks them finds the same.
//
// The content of the files is not part of it: they are listed and asked for their
// attributes, never opened.
package names
