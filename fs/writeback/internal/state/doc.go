// Package state is what survives of a mount: names, files, what is believed of the keys of the
// bucket and the operations that are to change them.
//
// A [State] is changed by [State.Apply] of a [Record] alone, live and in a replay: whoever appends
// a record to the journal applies it under the same lock. What a record means is in its apply
// method, how it is written in its walk method, and fs/writeback/JOURNAL.md describes both.
// Kinds and fields that were once used never change their meaning, which testdata/journal.golden
// holds.
//
// The package computes. It knows no disk, no object store, no goroutine and no lock.
package state
