// Package writer is the program that writes in a measurement: the same system calls
// over a directory, whichever file system is mounted there, or requests to a bucket
// without a file system.
//
// A [Job] is carried out by processes of their own ([Process]): one for each writer,
// which begin together. What is written is a function of name and position
// ([Content]); making it costs a store of 16 bytes a MiB, so that the timed loops do
// nothing but write. [Verify] compares every byte of what a bucket holds with it.
package writer
