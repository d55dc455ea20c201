// Package oss speaks to Alibaba Cloud OSS in its own words: objects, versions,
// ranges, listings and uploads.
//
// Everything above this package sees [Bucket], or one of the small interfaces
// it is made of. Below it is the vendor's SDK, which signs and frames requests
// but neither retries nor limits; those are this package's work, each a small
// type that wraps the next one and keeps the contract of the interfaces.
//
// The package is a leaf: it imports nothing else of pailfs. It keeps no bytes
// and no names; caching is the cache's business and listing state is the
// manifest's.
package oss
