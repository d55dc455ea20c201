package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/durable"
	"github.com/pailfs/pailfs/cache/internal/content"
)

// What lies in a cache directory. cache/FORMAT.md describes it.
const (
	FormatName  = "format"
	lockName    = "lock"
	ObjectsName = "objects"
	ProbeName   = "probe"

	// objectDirs is how many directories the object files are spread over.
	objectDirs = 256

	FormatMagic = "pailfs cache\n"
	// formatVersion is what is written. Version 1 had one more level of directories;
	// a cache that has it is converted.
	formatVersion    = 2
	formatOldVersion = 1
)

// neighbours are what other parts of pailfs keep in a cache directory. The cache
// leaves them alone.
var neighbours = []string{"staging", "sessions", "manifests", "last-end.json"}

// The errors of a cache directory that cannot be used, for errors.Is.
var (
	// ErrDirInUse means that another process owns the cache directory.
	ErrDirInUse = errors.New("cache directory is in use")
	// ErrDirForeign means that the directory holds something that is not a cache.
	ErrDirForeign = errors.New("directory is not empty and not a pailfs cache")
	// ErrDirOwner means that another user could change what is in the directory.
	ErrDirOwner = errors.New("cache directory is another user's")
	// ErrDirVersion means that the cache was made by a version that we do not know.
	ErrDirVersion = errors.New("cache has an unknown format")
)

// Directory is a cache directory that this process owns.
type Directory struct {
	path string
	lock *os.File
}

// OpenDirectory makes sure that path is a cache directory, or an empty one that
// may become one, and takes it.
func OpenDirectory(path string) (*Directory, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open cache directory %q: it does not exist; make it first: %w", path, err)
	case err != nil:
		return nil, fmt.Errorf("open cache directory: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("open cache directory %q: %w", path, unix.ENOTDIR)
	}
	if err := checkOwner(info); err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", path, err)
	}
	if err := inspect(path); err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", path, err)
	}
	lock, err := takeLock(filepath.Join(path, lockName))
	if err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", path, err)
	}
	d := &Directory{path: path, lock: lock}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare cache directory %q: %w", path, err), d.Close())
	}
	return d, nil
}

// checkOwner refuses the directory of another user, who could put other bytes into
// it, or links to files that the daemon would overwrite.
func checkOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if own := os.Geteuid(); ok && int(st.Uid) != own {
		return fmt.Errorf("it belongs to user %d, not to user %d who mounts: %w", st.Uid, own, ErrDirOwner)
	}
	return nil
}

// inspect refuses a directory that is not ours. It writes nothing.
func inspect(path string) error {
	format, err := os.ReadFile(filepath.Join(path, FormatName))
	if err == nil {
		_, err = checkFormat(format)
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		// A new file system has the first; the second is what a start leaves that was
		// cut off before the format was written.
		switch n := name.Name(); {
		case n == "lost+found", n == lockName, strings.HasPrefix(n, FormatName+"."), slices.Contains(neighbours, n):
		case n == ObjectsName:
			if err := inspectObjects(filepath.Join(path, n)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("it holds %q: %w", n, ErrDirForeign)
		}
	}
	return nil
}

// inspectObjects refuses a directory that holds anything but object files. Without
// the format these are what remains of a cache that was removed while a daemon had
// it.
func inspectObjects(path string) error {
	dirs, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if !objectsDirectory(dir) {
			return fmt.Errorf("it holds %q: %w", filepath.Join(ObjectsName, dir.Name()), ErrDirForeign)
		}
		files, err := os.ReadDir(filepath.Join(path, dir.Name()))
		if err != nil {
			return err
		}
		for _, file := range files {
			if _, ok := ParseFileName(dir.Name(), file.Name()); !ok {
				return fmt.Errorf("it holds %q: %w", filepath.Join(ObjectsName, dir.Name(), file.Name()), ErrDirForeign)
			}
		}
	}
	return nil
}

// objectsDirectory tells whether a directory has a name like those that we make.
func objectsDirectory(d fs.DirEntry) bool {
	name := d.Name()
	return d.IsDir() && len(name) == 2 && hexDigit(name[0]) >= 0 && hexDigit(name[1]) >= 0
}

// checkFormat refuses what we cannot read, and returns the version of the rest.
func checkFormat(format []byte) (version int, err error) {
	text, ok := bytes.CutPrefix(format, []byte(FormatMagic))
	if !ok {
		return 0, fmt.Errorf("file %q has another beginning: %w", FormatName, ErrDirForeign)
	}
	for _, version := range []int{formatOldVersion, formatVersion} {
		if string(text) == fmt.Sprintf("version %d\n", version) {
			return version, nil
		}
	}
	return 0, fmt.Errorf("it has %q, this is \"version %d\": %w; empty the directory or use another",
		strings.TrimSpace(string(text)), formatVersion, ErrDirVersion)
}

// prepare writes what a new cache directory must hold, and gives everything its
// modes, which must not depend on the umask.
func (d *Directory) prepare() error {
	if err := os.Chmod(d.path, 0o700); err != nil {
		return err
	}
	objects := filepath.Join(d.path, ObjectsName)
	if err := makeDirectory(objects); err != nil {
		return err
	}
	// All of them now: making one for an object costs as much as the file. Where
	// inodes are few they are made when they are needed.
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return err
	}
	for i := 0; i < objectDirs && !fewInodes(int64(st.Files), int64(st.Ffree)); i++ {
		if err := makeDirectory(filepath.Join(objects, fmt.Sprintf("%02x", i))); NoSpace(err) {
			break
		} else if err != nil {
			return err
		}
	}
	name := filepath.Join(d.path, FormatName)
	content := fmt.Appendf(nil, "%sversion %d\n", FormatMagic, formatVersion)
	switch was, err := os.ReadFile(name); {
	case err == nil && bytes.Equal(was, content):
		return nil
	case err == nil:
		if err := convertObjects(objects); err != nil {
			return fmt.Errorf("convert the cache: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return durable.ReplaceFile(name, name+".new", content)
}

// makeDirectory makes a directory unless there is something by that name: what
// cannot be used is met when it is.
func makeDirectory(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// convertObjects moves the object files of version 1, which lie one level deeper,
// to where version 2 has them. What is cut off goes on at the next start.
func convertObjects(objects string) error {
	firsts, err := os.ReadDir(objects)
	if err != nil {
		return err
	}
	for _, first := range firsts {
		if !objectsDirectory(first) {
			continue
		}
		dir := filepath.Join(objects, first.Name())
		seconds, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, second := range seconds {
			if !objectsDirectory(second) {
				continue
			}
			files, err := os.ReadDir(filepath.Join(dir, second.Name()))
			if err != nil {
				return err
			}
			for _, file := range files {
				if _, ok := ParseFileName(first.Name(), file.Name()); !ok {
					continue
				}
				if err := os.Rename(filepath.Join(dir, second.Name(), file.Name()), filepath.Join(dir, file.Name())); err != nil {
					return err
				}
			}
			if err := os.Remove(filepath.Join(dir, second.Name())); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
				return err
			}
		}
	}
	return nil
}

// Close gives the directory up.
func (d *Directory) Close() error { return d.lock.Close() }

// takeLock locks the file at path for as long as it is open, and says in it who
// has it.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, _ := os.ReadFile(path)
		_ = f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		return nil, fmt.Errorf("process %s has it: %w", lockOwner(owner), ErrDirInUse)
	}
	// The lock holds without it: a full disk must not keep a cache from being read.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// lockOwner returns the process id in a lock file, or that it is not known.
func lockOwner(content []byte) string {
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return "(unknown)"
	}
	return strconv.Itoa(pid)
}

// FileName returns the name of an object's file in the cache directory.
func FileName(id content.Identity) string {
	name := id.String()
	return ObjectsName + "/" + name[:2] + "/" + name
}

// ParseFileName is the inverse of FileName.
func ParseFileName(dir, name string) (content.Identity, bool) {
	var id content.Identity
	if len(name) != 2*len(id) || name[:2] != dir {
		return id, false
	}
	for i := range id {
		hi, lo := hexDigit(name[2*i]), hexDigit(name[2*i+1])
		if hi < 0 || lo < 0 {
			return id, false
		}
		id[i] = byte(hi<<4 | lo)
	}
	return id, true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
