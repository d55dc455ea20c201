package manifest

import (
	"strings"
	"syscall"
)

// KeyOf returns the key that a new object must have to be shown as name in the
// directory dir of a mount of the keys under prefix. Where no key is shown so, or
// not for long, it is EILSEQ; ENAMETOOLONG if the key would be longer than OSS
// takes; EACCES for what is pailfs's own.
func KeyOf(prefix, dir, name string) (string, error) {
	component, beside, ok := componentOf(name)
	parent, shown := prefixOf(prefix, dir)
	switch {
	case len(name) > maxName:
		return "", syscall.ENAMETOOLONG
	case !ok || beside:
		return "", syscall.EILSEQ
	case !shown && len(dir) > maxKey/2:
		return "", syscall.ENAMETOOLONG
	case !shown:
		return "", syscall.EILSEQ
	}
	key := parent + component
	switch {
	case len(key) > maxKey:
		return "", syscall.ENAMETOOLONG
	case strings.HasPrefix(key+"/", ownPrefix):
		return "", syscall.EACCES
	case key == "" || key[0] == '/' || key[0] == '\\':
		// OSS refuses such keys.
		return "", syscall.EILSEQ
	}
	return key, nil
}
