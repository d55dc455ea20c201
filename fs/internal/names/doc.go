// Package names says what a mount shows under which name: a tree, with what was changed here
// laid over it by the space of write-back, and behind that the fifos and sockets that only
// this mount has.
//
// It asks for names by path. Inodes, and what the kernel was told, it does not know.
package names
