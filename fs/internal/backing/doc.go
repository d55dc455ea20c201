// Package backing gives the kernel files of the disk to read and write by itself:
// passthrough.
//
// It finds out once whether the kernel takes any, and then says of each file whether it was
// taken. Which file, and when, its caller decides.
package backing
