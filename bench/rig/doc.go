// Package rig starts and stops the programs of a measurement: the server, and
// the clients that make its objects readable.
//
// A [Driver] is one client in one configuration: the plain disk, requests
// without a file system, pailfs. [Driver.Start] gives a [Session], which knows
// where its files are and which daemons work for it. Everything runs as a real
// process, found in one directory of programs, started with the flags that a
// user would give, and ended before its Stop returns.
package rig
