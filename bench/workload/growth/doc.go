// Package growth holds what is read while one thing grows: the size of an object, the files
// of a directory, the directories above a file, the readers.
package growth
