package cache

import (
	"errors"

	"github.com/pailfs/pailfs/cache/internal/disk"
)

// The errors of [Open] for a directory that cannot be used, for errors.Is.
var (
	// ErrDirInUse means that another process owns the cache directory.
	ErrDirInUse = disk.ErrDirInUse
	// ErrDirForeign means that the directory holds something that is not a cache.
	ErrDirForeign = disk.ErrDirForeign
	// ErrDirOwner means that another user could change what is in the directory.
	ErrDirOwner = disk.ErrDirOwner
	// ErrDirVersion means that the cache was made by a version that we do not know.
	ErrDirVersion = disk.ErrDirVersion
)

// ErrNoSpace means that there is no room for a cache, or for an object in it.
var ErrNoSpace = errors.New("file system has no room for a cache")
