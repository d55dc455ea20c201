package order

import "strings"

// Join returns the path of base in dir. Of an empty one it is the other.
func Join(dir, base string) string {
	switch {
	case dir == "":
		return base
	case base == "":
		return dir
	}
	return dir + "/" + base
}

// Within reports whether dir is above or below it.
func Within(dir, above string) bool {
	return above == "" || dir == above || strings.HasPrefix(dir, above+"/")
}

// Parent returns the directory above dir, which is not the root.
func Parent(dir string) string {
	return dir[:max(strings.LastIndexByte(dir, '/'), 0)]
}
