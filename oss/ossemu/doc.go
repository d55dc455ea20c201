// Package ossemu is an object storage server that speaks the OSS protocol over
// a local directory, faithful enough that real clients run against it
// unmodified.
//
// A request walks one way. It is addressed (which bucket, which key, in which
// style), named (which operation), verified by package sign, counted against
// the request rate, and offered to the faults. Its operation, which is one of a
// bucket, a listing, an object or an upload in parts, then works on package store
// and returns a reply, which is a status, headers and either a small document or
// the content of one object version. Only then is the latency of package shape
// waited for, and only in one place is the reply written: by sendfile where
// nothing has to touch the bytes, in paced slices where a bandwidth is set, and
// spoiled where a fault says so.
//
// No lock is held while a request waits. A reply that is being sent keeps the
// version that it began with, whatever happens to the key meanwhile.
//
// The package and its parts import nothing else of pailfs and no vendor SDK: a
// misunderstanding of the protocol must not be shared with the clients that are
// tested against it. Nothing is flushed to disk: what was answered survives the
// death of the process, not loss of power.
package ossemu
