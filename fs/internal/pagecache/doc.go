// Package pagecache guesses what the kernel's page cache has of a file that is read through
// the mount, and brings the cache's own files into it.
//
// A file that is whole on SSD has two page caches: that of the mount, which READs fill, and
// that of the cache's file, which passthrough reads. The cache writes large extents past the
// page cache, so after a first reading the mount has all of the file and the cache's file
// nothing. An open in passthrough makes the kernel drop what the mount has, and would read all
// of it from the disk again.
//
// So a file that is read again stays cached as long as the mount has more of it, and goes to
// passthrough as soon as that costs no disk.
package pagecache
