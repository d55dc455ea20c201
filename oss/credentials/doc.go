// Package credentials holds the keys that are valid now, and renews them before they
// expire.
//
// A [Source] reads one place: the environment, a file, the metadata service, a role, the
// default chain of the vendor's library. One goroutine reads it; requests use what was
// read last, and tell when the server refused it. A [Secret] is shown by no printing.
//
// The package makes no request to an object store and knows none of its errors. Why it
// renews as it does stands in oss/DESIGN.md.
package credentials
