// Package dataset makes the files that are read in a measurement, and checks
// what was read.
//
// Made content is a function of the file's name and the position, so that the
// disk copy and the object in the bucket are the same without being copied from
// one another, and so that a page that turns up in the wrong place is noticed.
// A [Manifest] describes the files of a set and carries a CRC32C of every MiB;
// it is what a reading process is given. Real data sets (Fashion-MNIST) get the
// same manifest.
package dataset
