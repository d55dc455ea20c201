// Package publish keeps manifests in the bucket that they tell of, so that every
// node has the same one and nobody lists twice.
//
// A published manifest is an immutable object with a number, its generation; the
// object called latest points to the newest one and says everything about it in
// its own metadata, so that a mount finds it with one request. PUBLISHING.md says
// where the objects lie, what is in them, and why neither a crash nor two
// publishers at once can show a reader anything but one whole manifest.
//
// The package moves files and knows nothing of what is in them.
package publish
