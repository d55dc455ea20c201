// Package demo shows pailfs at work on real data: the 70,000 images of
// Fashion-MNIST as single files, and one large file of the same images.
//
// [Run] loads them into the bucket of an emulated server that is as far away as
// the profile seed says, mounts the bucket, and reads cold, from SSD, and warm,
// beside a plain copy on the same disk. Every byte that any of these reads
// delivers is compared with a checksum of the original. The result is a table
// and a picture.
//
// Everything lies in one directory. What an earlier, interrupted demo left there
// is ended and removed first, so that a demo can always be started again.
package demo
