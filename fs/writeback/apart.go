package writeback

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// topDir is ext4's FS_TOPDIR_FL: directories that are made in one that has it are
// spread over the disk.
const topDir = 0x20000

// makeStaged makes the directory of the staged files, if there is none. On ext4 it
// gets a place apart from what else is near dir: there a new file passes over every one
// that was removed within the last minutes near its directory, one by one, and removed
// are files of the cache, and of everybody else.
func makeStaged(dir string) error {
	staged := filepath.Join(dir, stagedDir)
	if info, err := os.Stat(staged); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// What refuses the flag gains nothing by it.
	_ = spread(dir)
	return os.MkdirAll(staged, 0o700)
}

// spread sets topDir on a directory of ext4.
func spread(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return fmt.Errorf("ask for the file system of %q: %w", dir, err)
	}
	if st.Type != unix.EXT4_SUPER_MAGIC {
		return fmt.Errorf("spread %q: %w", dir, unix.ENOTTY)
	}
	flags, err := unix.IoctlGetUint32(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return fmt.Errorf("ask for the flags of %q: %w", dir, err)
	}
	if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir)); err != nil {
		return fmt.Errorf("set the flags of %q: %w", dir, err)
	}
	return nil
}
