// Package snapfile reads and writes the file that holds a manifest: every
// directory of a prefix, and in each its rows, sorted.
//
// The file is described byte by byte in manifest/FORMAT.md. A [Writer] is given
// directories and rows in order and writes them once, front to back. A [File]
// answers with ranged reads: a directory is found in the
// directory table, a row among the directory's rows, each through an index of
// two levels of which only the upper one is held. What is decoded is kept within a
// budget of bytes and read without locks.
//
// Every byte is under a checksum that also holds its place in the file, and
// what is decoded is checked as if there were none: damage gives a [DamageError]
// and never a wrong row.
//
// The package knows rows and their order. Which names they are shown under is the
// matter of package manifest.
package snapfile
