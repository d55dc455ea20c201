package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Exposure is one way in which others than root and this process's user could put
// something else in place of a path, or change what is there.
type Exposure struct {
	// Path is the file, directory or link that they can change.
	Path string
	// Why says who they are.
	Why string
	// Anyone means every user of the machine, not one user or group alone.
	Anyone bool
}

// String says it for people.
func (e Exposure) String() string { return e.Path + " " + e.Why }

// Worst returns the first that lets anyone in, else the first; ok is false if there
// is none.
func Worst(all []Exposure) (e Exposure, ok bool) {
	for _, e := range all {
		if e.Anyone {
			return e, true
		}
	}
	if len(all) == 0 {
		return Exposure{}, false
	}
	return all[0], true
}

// mostLinks is how many links the kernel follows.
const mostLinks = 40

// Find returns how path, which is absolute and may not exist yet, is exposed.
func Find(path string) ([]Exposure, error) {
	w := walk{top: "/", own: os.Geteuid(), group: os.Getegid()}
	if err := w.follow(filepath.Clean(path)); err != nil {
		return nil, fmt.Errorf("look at the way to %s: %w", path, err)
	}
	return w.found, nil
}

// walk goes down a path.
type walk struct {
	// top is where it begins, with what others can reach.
	top        string
	own, group int
	found      []Exposure
	links      int
}

// follow looks at every step to path, which is below top.
func (w *walk) follow(path string) error {
	at := w.top
	rest := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, at), "/"), "/")
	for {
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // made by this process
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return w.link(at, info, rest)
		}
		w.judge(at, info)
		if info.IsDir() && w.closed(info) {
			return nil // nobody else gets to what is below
		}
		if len(rest) == 0 || rest[0] == "" {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// link goes on where the link at path leads.
func (w *walk) link(path string, info fs.FileInfo, rest []string) error {
	if w.links++; w.links > mostLinks {
		return syscall.ELOOP
	}
	if owner := ownerOf(info); !w.trusts(owner) {
		w.found = append(w.found, Exposure{Path: path, Why: fmt.Sprintf("is a link of user %d", owner)})
	}
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	return w.follow(filepath.Join(append([]string{target}, rest...)...))
}

// judge says how one file or directory is exposed.
func (w *walk) judge(path string, info fs.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() && !info.Mode().IsRegular() {
		return // a terminal or a pipe is what it is
	}
	mode := info.Mode()
	// In a sticky directory others cannot touch what is not theirs.
	shared := info.IsDir() && mode&fs.ModeSticky != 0
	switch {
	case !w.trusts(int(st.Uid)):
		w.found = append(w.found, Exposure{Path: path, Why: fmt.Sprintf("belongs to user %d", st.Uid)})
	case mode&0o002 != 0 && !shared:
		w.found = append(w.found, Exposure{Path: path, Why: fmt.Sprintf("can be written by everybody (mode %04o)", mode.Perm()), Anyone: true})
	case mode&0o020 != 0 && !shared && int(st.Gid) != w.group:
		w.found = append(w.found, Exposure{Path: path, Why: fmt.Sprintf("can be written by group %d (mode %04o)", st.Gid, mode.Perm())})
	}
}

// closed reports whether nobody but root and this user may enter the directory.
func (w *walk) closed(info fs.FileInfo) bool {
	return info.Mode().Perm()&0o011 == 0 && w.trusts(ownerOf(info))
}

func (w *walk) trusts(uid int) bool { return uid == 0 || uid == w.own }

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
