package names

import "strings"

// Join appends name to the path of a directory.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Below reports whether the directory dir is path or lies below it.
func Below(dir, path string) bool {
	return dir == path || strings.HasPrefix(dir, path) && dir[len(path)] == '/'
}

// Split is the inverse of [Join].
func Split(path string) (dir, name string) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return "", path
}
