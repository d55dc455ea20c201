// Package journal keeps records in a file of a directory, so that they survive what the
// directory's disk survives. It knows their bytes and not what they mean.
//
// A journal is a header (magic, version, checksum) and frames: length, CRC-32C, body; see
// fs/writeback/JOURNAL.md. [Log.Append] gives a record its place, under the lock under
// which the caller applies it; [Log.Write] brings everything up to a position to the file, so
// that it outlives the process; [Log.Sync] brings it to the disk, so that it outlives the
// machine, in one flush for all that wait. It holds at any moment that synced ≤ written ≤
// appended.
//
// A flush that failed is followed by one that succeeds without what it has lost, also in another
// process. So a file beside the journal says how much of it the disk has, and [Open] writes the
// rest once more.
//
// [Replay] reads the frames until the first that is not whole, and [SetAside] keeps what
// follows for people. [Log.Replace] puts a shorter journal that says the same in the place of
// the one that has grown: the new file is written and synced under another name, renamed, and
// the directory is synced. If nobody knows which of the two the disk has, nothing is written
// any more.
//
// On a full disk nothing could be freed without a record. [Log.Reserve] therefore allocates
// room beyond the end of the file, and for the file that is to take its place.
//
// Who owns the directory, what a record is, and when a journal is worth replacing is decided
// by fs/writeback.
package journal
