// Package guess fetches what is likely to be read next though nobody announced it: what
// comes next in a directory that is read in order, and the rest of one that is read in any
// order, as far as there is room that is free.
//
// It does nothing by itself: it is told what is opened, and is a source of jobs for a
// scheduler.
package guess
