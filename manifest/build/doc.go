// Package build makes manifests: it finds out which objects there are and writes
// them down as a snapshot of package manifest.
//
// There are three sources. A listing divides the keys between many requests by
// itself, however unevenly they lie (lister). An OSS bucket inventory is read
// from its CSV files (inventory). A plain list of keys is asked about object by
// object (keyList). What they find goes through the same funnel: attributes and
// symlink targets are asked for where they are wanted (attributes), every batch
// is appended to a log in the state directory (progress), and the manifest's
// Builder sorts it. A build that was killed replays the log, and asks only for
// what is not in it.
//
// Updating merges an old snapshot with a listing of some prefixes, verifying
// compares a snapshot with the bucket, and comparing tells two snapshots apart.
//
// The package does not publish; see package publish. DESIGN.md says why things
// are as they are.
package build
