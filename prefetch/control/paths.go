package control

import (
	"strings"

	"github.com/pailfs/pailfs/prefetch/rights"
)

const (
	// maxSpelled bounds the paths of one call, each with the base before it, in bytes: so
	// that 16 KiB of request do not become megabytes.
	maxSpelled = 2 << 20
	// besideName is what is kept beside the text of a path while a method runs.
	besideName = 96
)

// spelled returns how many bytes the paths have that a caller names.
func spelled(c Caller, base string, names []string) (bytes int64) {
	for _, name := range names {
		bytes += int64(len(c.Dir) + 1 + len(base) + len(name))
	}
	return bytes
}

// kept returns how much memory the paths take while a method runs.
func kept(c Caller, base string, names []string) int64 {
	return min(spelled(c, base, names), maxSpelled) + besideName*int64(len(names))
}

// absolute returns the paths in the mount of names said by a caller.
func absolute(c Caller, base string, names []string) ([]string, error) {
	if n := spelled(c, base, names); n > maxSpelled {
		return nil, Errorf(CodeBadRequest, "the %d paths have %d bytes with the base before each, the limit is %d: name fewer in a call, or a shorter base",
			len(names), n, maxSpelled)
	}
	paths := make([]string, len(names))
	for i, name := range names {
		var err error
		if paths[i], err = c.Path(base + name); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// within returns the path that name, said on the directory dir, has in the mount.
func within(dir, name string) (string, error) {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if name == "." {
		name = ""
	}
	if err := rights.CheckPath(name); err != nil {
		return "", Errorf(CodeBadRequest, "%v", err)
	}
	switch {
	case dir == "":
		return name, nil
	case name == "":
		return dir, nil
	default:
		return dir + "/" + name, nil
	}
}

func (in PathsParams) size(c Caller) int64 { return kept(c, in.Base, in.Paths) }

func (in WarmAddParams) size(c Caller) int64 { return kept(c, in.Base, in.Paths) }

// The answers of these two spell the paths again, and perhaps in the text of an error.
func (in EvictParams) size(c Caller) int64   { return 4 * kept(c, in.Base, in.Paths) }
func (in MeasureParams) size(c Caller) int64 { return 4 * kept(c, in.Base, in.Paths) }

var (
	_ sized = PathsParams{}
	_ sized = WarmAddParams{}
	_ sized = EvictParams{}
	_ sized = MeasureParams{}
)
