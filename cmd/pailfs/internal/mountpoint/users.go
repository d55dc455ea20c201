package mountpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// User is a process that has files of a mount open.
type User struct {
	PID int `json:"pid"`
	// Name is the process's command name.
	Name string `json:"name"`
	// Files is how many descriptors lead into the mount.
	Files int `json:"open_files"`
}

// Users returns the processes that have files of m open, those with most of them first, as far as
// this user may see them. It reads /proc alone and never touches the mount.
func Users(m Mount) []User {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is right
	}
	var users []User
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it has ended, or is not ours
		}
		open := 0
		for _, f := range files {
			if target, err := os.Readlink(filepath.Join(dir, "fd", f.Name())); err == nil && Within(m.Path, target) {
				open++
			}
		}
		if open > 0 {
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // it may have ended
			users = append(users, User{pid, strings.TrimSpace(string(name)), open})
		}
	}
	slices.SortFunc(users, func(a, b User) int {
		if a.Files != b.Files {
			return b.Files - a.Files
		}
		return a.PID - b.PID
	})
	return users
}
