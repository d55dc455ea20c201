// Package staging knows how much room the staged files of a directory occupy.
//
// The kernel writes to staged files without telling anybody. So the files that are open for
// writing are measured at each look, the others when something was done to them, and nothing is
// asked of the disk for the rest, however many there are.
package staging
