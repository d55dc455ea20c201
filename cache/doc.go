// Package cache returns the bytes of an object version: from memory, from SSD
// or, on a miss, from the object store.
//
// A reader opens an [oss.Object] and reads from the [Handle]. The cache alone
// decides what is fetched with it, how wide, how far ahead, and what stays.
package cache
