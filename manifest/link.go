package manifest

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// linker finds the paths between keys.
type linker struct {
	// prefix is the mounted part of the bucket, under which tree shows names.
	prefix string
	tree   Tree
}

// linkPath returns the path from the directory of the key link to the key
// target.
func (l linker) linkPath(ctx context.Context, link, target string) (string, error) {
	from, ok := strings.CutPrefix(link, l.prefix)
	if !ok {
		return "", fs.ErrPermission
	}
	to, ok := strings.CutPrefix(target, l.prefix)
	if !ok || isOwn(target, l.prefix) || leadsUp(to) {
		return "", fs.ErrPermission
	}
	names, err := l.pathOf(ctx, to)
	if err != nil {
		return "", err
	}
	// A key has as many components as its path, so the directories above the link
	// can be counted and compared as components of keys.
	above := strings.Split(from, "/")
	above = above[:len(above)-1]
	components := strings.Split(to, "/")
	same := 0
	for same < len(above) && same < len(names)-1 && above[same] == components[same] {
		same++
	}
	var path []string
	for range above[same:] {
		path = append(path, "..")
	}
	path = append(path, names[same:]...)
	if len(path) == 0 {
		return ".", nil
	}
	return strings.Join(path, "/"), nil
}

// leadsUp reports whether a key would lead out of the directory that it is relative to if it
// were a path. It is none, but who made the link meant one: to be told that this is
// not to be had says more than the name of an object that nobody has.
func leadsUp(key string) bool {
	depth := 0
	for component := range strings.SplitSeq(key, "/") {
		switch component {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// pathOf returns the names that lead from the root of the mount to key, which is
// without the mounted prefix. If it ends with a slash, or names no object but a
// directory, they lead to that directory.
func (l linker) pathOf(ctx context.Context, key string) ([]string, error) {
	toDirectory := strings.HasSuffix(key, "/")
	key = strings.TrimSuffix(key, "/")
	if key == "" {
		return nil, nil
	}
	var names []string
	for component := range strings.SplitSeq(key, "/") {
		name := nameOf(component, false)
		if len(name) > maxName {
			return nil, fs.ErrNotExist
		}
		names = append(names, name)
	}
	if toDirectory {
		return names, nil
	}
	// If the object is beside a directory, its plain name means the directory.
	last := len(names) - 1
	dir := strings.Join(names[:last], "/")
	e, _, err := l.tree.Lookup(ctx, dir, names[last])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && e.Kind == Directory {
		beside := nameOf(key[strings.LastIndexByte(key, '/')+1:], true)
		switch _, _, err := l.tree.Lookup(ctx, dir, beside); {
		case err == nil:
			names[last] = beside
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return names, nil
}
