// Package mountpoint says whether something can be mounted at a directory, why it could not,
// and takes away what is mounted there.
//
// Each error names the remedy, in one line. The package knows nothing of what is mounted.
package mountpoint
