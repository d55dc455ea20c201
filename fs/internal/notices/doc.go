// Package notices tells the kernel what to forget: names, content, attributes.
//
// It knows numbers of inodes and names, and nothing of what they are.
package notices
