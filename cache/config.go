package cache

import (
	"errors"
	"fmt"
)

// Config says how much the cache may use and where. The zero value is a cache
// in memory only, of the default size.
type Config struct {
	// Bucket names the bucket, with its endpoint, that the objects live in. It
	// tells apart the buckets that use one Dir, one after the other.
	Bucket string
	// Dir is the directory of the SSD tier. It must exist, be ours and hold
	// nothing but a cache. "" means that there is no SSD tier.
	Dir string
	// Size is the number of bytes that the SSD tier may occupy; 0 means whatever
	// the file system has beyond MinFreeBytes.
	Size int64
	// Beside, if set, tells how many bytes others keep in Dir that count in Size: the SSD
	// tier occupies so much less, and makes room where it has more.
	Beside func() int64
	// Memory is the number of bytes for everything that the cache keeps in memory:
	// what stays, what is in flight and what waits to be written to SSD. At least
	// 64 MiB; 0 means an eighth of the memory that the machine, or our cgroup, has,
	// but at most 4 GiB.
	Memory int64
	// MinFreeBytes is the free space that the SSD tier leaves on its file system;
	// 0 means a tenth of it.
	MinFreeBytes int64
	// MinFreeInodes is the same for inodes.
	MinFreeInodes int64
	// Track is how many accesses wait for whoever reads Accesses; 0 means that there
	// is nobody.
	Track int
	// Never, if set, tells by its key that an object is not to be kept: it never
	// comes onto SSD, and leaves memory when it is closed.
	Never func(key string) bool
}

// validate refuses what makes no sense.
func (cfg Config) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if cfg.Memory != 0 && cfg.Memory < minMemory {
		refuse("cache memory of %d bytes: at least %d are needed", cfg.Memory, minMemory)
	}
	if cfg.Size < 0 || cfg.Size > 0 && cfg.Size < minSSD {
		refuse("cache size of %d bytes: at least %d are needed", cfg.Size, minSSD)
	}
	if cfg.MinFreeBytes < 0 || cfg.MinFreeInodes < 0 {
		refuse("free space to be left must not be negative")
	}
	if cfg.Dir == "" && cfg.Size > 0 {
		refuse("cache size of %d bytes without a cache directory", cfg.Size)
	}
	return errors.Join(errs...)
}
