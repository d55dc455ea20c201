// Package reader is the program that reads in a measurement: the same loop over
// a directory, whichever file system is mounted there, or over a bucket without
// a file system.
//
// A [Job] is carried out by a process of its own ([Process]), so that its
// processor time and memory are its own, and its answer is an [Outcome]. The
// loops over files use raw system calls on locked threads with the collector
// switched off, because what the reader itself costs is in every figure, on both
// sides of every ratio, and makes the slower side look better.
//
// What was read is checked as Job.Check says. [Stamps] costs about a nanosecond
// a page and runs inside the timed loop; [Bytes] looks at every byte and is for
// passes that are not timed, or where both sides pay for it.
package reader
