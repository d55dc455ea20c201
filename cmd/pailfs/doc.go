// Pailfs mounts a bucket of Alibaba Cloud OSS as a file system.
//
//	pailfs mount oss://bucket/prefix /mnt/data --endpoint URL [flags]
//	pailfs ls
//	pailfs status /mnt/data
//	pailfs top
//	pailfs umount /mnt/data
//	pailfs doctor oss://bucket/prefix
//	pailfs manifest build|update|show|ls|verify|diff oss://bucket/prefix
//	pailfs config
//	pailfs version
//
// This package is the commands: each parses its flags, calls one of the rooms below, prints what
// came of it and returns the exit code.
//
//	internal/mounting    a mount: its parts opened in order, and closed in reverse
//	internal/wire        what commands and daemon say to each other
//	internal/ask         finds a mount and asks its daemon
//	internal/child       calls that may never return, in a process of their own
//	internal/look        all mounts of the host, and how each does
//	internal/ls          pailfs ls
//	internal/rates       what a mount did between two answers
//	internal/overview    what people are shown of a mount, computed from what its daemon says
//	internal/top         pailfs top
//	internal/doctor      pailfs doctor
//	internal/reach       from settings and keys to a bucket
//	internal/manifests   the commands of pailfs manifest
//	internal/machine     what the machine gives a mount, and what the process gives up
//	internal/detached    a daemon in the background, and who waits for it
//	internal/daemonlog   the daemon's log
//	internal/web         the server of metrics, health, profiles and the page
//	internal/page        the status page, with half an hour of history
//	internal/audit       who did what through a mount
//	internal/config      settings: flags, variables, file, defaults
//	internal/access      who may read which path
//	internal/mountpoint  mounts of this machine, and whether they answer
//	internal/safepath    whether others can replace a path
//	internal/programtest what tests of the built program share
//
// A new command is a type with Help and Run in a file of this package, and a field of cli. What it
// asks a mount is a method in wire, answered in mounting. A command about a bucket without a mount
// embeds reach.StoreFlags.
//
// One mount is one process. It runs in the foreground; with --detach the program
// starts itself again in a session of its own and returns when the mount answers.
// Called as mount.pailfs or mount.fuse.pailfs the program is the helper that
// mount(8) runs for -t fuse.pailfs and for lines of /etc/fstab.
package main
