// Package oss speaks to Alibaba Cloud OSS in its own words: objects, versions,
// ranges, listings and uploads.
//
// Everything above this package sees [Bucket], or one of the small interfaces
// it is made of. A call walks down through small types, each with one duty:
//
//	view        what is asked, and in which class: validates, makes one request of it
//	retrying    repeats it until it succeeds, fails for good, or the class's deadline comes
//	limiter     whose turn it is, and how many requests the service bears
//	hedge       sends a late demand read a second time
//	attempt     one request on the wire, with clocks for its first byte and its body
//	readSigner  signs ranged GETs and HEADs; the vendor's SDK signs and frames the rest
//	transport   HTTP/1.1 over kept connections
//
// An answer comes back up as bytes in the caller's own buffer, or as an error
// that is classified once, in failure.go. Package credentials
// stands beside: it holds the keys that are valid now and renews them.
//
// The package imports its own parts and nothing else of pailfs. It keeps no bytes
// and no names; caching is the cache's business and listing state is the
// manifest's. The reasons for what it does are in DESIGN.md.
package oss
