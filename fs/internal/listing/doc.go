// Package listing reads directories: it gives the entries of one as they are now, from any
// offset that the kernel has, while names come and go and several programs read.
//
// A [Directory] is what an inode has of that, a [Listing] numbers its entries as somebody saw
// them, a [Reader] is somebody who reads, [Cursors] bounds what is kept for nobody. Names come
// from a [names.View]. Inodes, attributes and answers to the kernel it does not know.
package listing
