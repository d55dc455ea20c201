// Pailfs mounts a bucket of Alibaba Cloud OSS as a file system.
//
//	pailfs mount oss://bucket/prefix /mnt/data --endpoint URL [flags]
//	pailfs status /mnt/data
//	pailfs umount /mnt/data
//	pailfs manifest build|update|show|ls|verify|diff oss://bucket/prefix
//	pailfs config
//	pailfs version
//
// This package is the composition root. It reads the configuration, opens the
// parts from the object store upward, puts the file system on top, and stops them
// in the reverse order. It holds no logic of the data path: what is read, cached
// or listed is decided in the packages that it composes.
//
// One mount is one process. It runs in the foreground; with --detach the program
// starts itself again in a session of its own and returns when the mount answers.
// Called as mount.pailfs or mount.fuse.pailfs the program is the helper that
// mount(8) runs for -t fuse.pailfs and for lines of /etc/fstab.
package main
