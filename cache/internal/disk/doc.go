// Package disk is the cache directory and the files in it.
//
// [OpenDirectory] makes sure that a directory is ours and takes it for this process;
// cache/FORMAT.md says what lies in it. A [FileSystem] is what is asked of the disk below,
// so that a test can put another in its place, and a [File] one open object file, which
// its users share. [Health] says, from how operations end, what the disk may be used for,
// and [CheckedFiles] which whole files need not be checked again.
//
// What the bytes of a file mean, and which files there should be, is for others to know.
package disk
