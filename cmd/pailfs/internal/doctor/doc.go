// Package doctor is the command pailfs doctor: whether this host, and a bucket from it, are what a
// mount needs, and what to do where they are not.
//
// Each check is a small type that holds the facts it judges (host.go, store.go), so that a test can
// give it others. Facts are gathered in facts.go and bucket.go. A check gives a [Finding]: ok, warn
// or fail, with a remedy.
package doctor
