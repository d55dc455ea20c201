// Package keep keeps what sessions hold over the death of the daemon, and for other nodes.
//
// [Keeper] opens and closes the sessions of package announced, and saves what changed: every
// second on this node, and more seldom, where a client named a directory, on the mount. A
// [Store] keeps the files and does not understand them (package sessionstore); prefetch/DESIGN.md
// describes them.
package keep
