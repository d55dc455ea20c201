// Package sink is the floor of every go-fuse file system that takes new files: one that
// answers what the kernel asks for when programs create, write and close files, and does
// next to nothing for it.
//
// [Serve] mounts it in one of two ways. One that keeps nothing takes the bytes and drops
// them, so that what is measured are the requests alone. One that stages makes a file of
// the disk for each new file, passes it to the kernel, and writes its bytes down once more
// at the close, without any flush: what a file system must do at least whose closed files
// outlive it.
//
// Names come and never go. Nothing can be read, renamed or removed.
package sink
