// Package audit keeps a record of who did what with the files of a mount, as lines of JSON in a
// file, in syslog or in the journal. AUDIT.md describes the lines, and what they do not show.
//
// A [Log] is what fs and the control channel tell of operations. A bounded queue stands between
// them and one goroutine, which encodes the records and writes them to a sink. Nothing is lost in
// silence: where the queue is full operations wait, or what is dropped is counted, and the count
// is a record of its own as soon as there is room.
package audit
