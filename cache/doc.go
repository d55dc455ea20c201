// Package cache returns the bytes of an object version: from memory, from SSD
// or, on a miss, from the object store.
//
// A reader opens an [oss.Object] and reads from the [Handle]. The cache alone
// decides what is fetched with it, how wide, how far ahead, and what stays. Others
// state facts: an open handle pins, Fetch declares interest, Release disinterest,
// Drop that a version is no more.
//
// Objects are divided into blocks of 64 KiB, for which presence and checksums are
// kept, and segments of 8 MiB, beyond which no request reaches (internal/content). One
// request brings one extent: a run of blocks of a segment in one buffer outside
// the Go heap (extent.go, buffers.go). A read finds its blocks in an extent, in an
// extent that is on its way (flight.go), in the object's file on SSD
// (diskread.go), or starts a flight for what is missing (read.go) and, if it
// belongs to a stream, for what will be (readahead.go). Reads at random places that
// lie close together bring in more and more around them (around.go). A read waits until
// its own bytes have arrived, not for the rest of the request.
//
// What has arrived goes three ways, in the same buffer: to those who wait; to the
// memory tier, where ristretto decides what stays (memory.go); and to the SSD
// tier, whose writers trail behind (diskwrite.go) and whose index follows them
// (indexer.go). One budget counts all bytes in buffers (budget.go). Reads that
// somebody waits for may use all of it, everything else leaves them a reserve.
//
// A cache entry never changes: another version is another object. So there is
// nothing to invalidate, and a read returns bytes of exactly the version that was
// opened. Every block has a CRC-32C, which is compared when a block is read for
// the first time after a start; every object is compared with the CRC-64 of the
// object store, small ones before their first byte is returned, others as soon as
// all of their blocks have been seen.
//
// A file that was written on this machine becomes an object's file when it has been
// published (adopt.go), and the object's file becomes a writer's (take.go): by a
// rename, so that whoever has it open in the kernel sees one file throughout.
//
// What can be understood without the rest lies below internal: content (names, geometry,
// checksums), disk (the directory and its files), index, and eviction (what stays).
//
// The package keeps no dirty data and no names, and its content may vanish at any
// time. FORMAT.md describes what lies on disk, DESIGN.md why things are as they are.
package cache
