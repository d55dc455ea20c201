package manifest

import (
	"strings"
)

// NAMES.md explains these.
const (
	// escapeMark ends the name of a component that cannot be shown as it is.
	escapeMark = "%~"
	// besideMark ends the name of an object beside a directory of the same name.
	besideMark = "%~file"
	// maxName is the longest name in bytes that Linux takes.
	maxName = 255
	// maxKey is the longest key in bytes that OSS takes.
	maxKey = 1023
	// ownPrefix begins the keys that are pailfs's own, at the root of a bucket and
	// below the mounted prefix.
	ownPrefix = ".pailfs/"
)

// isOwn reports whether key is pailfs's own where mounted is the mounted prefix.
func isOwn(key, mounted string) bool {
	if strings.HasPrefix(key, ownPrefix) {
		return true
	}
	rest, ok := strings.CutPrefix(key, mounted)
	return ok && strings.HasPrefix(rest, ownPrefix)
}

// plain reports whether a component of a key can be shown as it is, but for its
// length.
func plain(component string) bool {
	switch component {
	case "", ".", "..":
		return false
	}
	return strings.IndexByte(component, 0) < 0 &&
		!strings.HasSuffix(component, escapeMark) &&
		!strings.HasSuffix(component, besideMark)
}

// nameOf returns the name that shows a component of a key. beside says that the
// component is an object and that there is a directory of the same name. The
// name is not usable if it is longer than maxName.
func nameOf(component string, beside bool) string {
	switch {
	case beside:
		return escaper.Replace(component) + besideMark
	case plain(component):
		return component
	default:
		return escaper.Replace(component) + escapeMark
	}
}

// componentOf is the inverse of nameOf. ok is false if no component is shown as
// name.
func componentOf(name string) (component string, beside, ok bool) {
	if len(name) > maxName || strings.IndexByte(name, '/') >= 0 {
		return "", false, false
	}
	switch {
	case plain(name):
		return name, false, true
	case strings.HasSuffix(name, besideMark):
		component, beside = strings.TrimSuffix(name, besideMark), true
	case strings.HasSuffix(name, escapeMark):
		component = strings.TrimSuffix(name, escapeMark)
	default:
		return "", false, false
	}
	component = unescaper.Replace(component)
	// An escape that was not needed, or is not one of ours, names nothing: else an
	// object would have two names.
	return component, beside, nameOf(component, beside) == name
}

var (
	escaper   = strings.NewReplacer("%", "%25", "\x00", "%00")
	unescaper = strings.NewReplacer("%25", "%", "%00", "\x00")
)

// prefixOf returns the prefix of the keys in the directory at the path dir of a
// mount of the keys under mounted. ok is false if no keys are shown there.
func prefixOf(mounted, dir string) (prefix string, ok bool) {
	if dir == "" {
		return mounted, true
	}
	var b strings.Builder
	b.Grow(len(mounted) + len(dir) + 1) // names are never shorter than components
	b.WriteString(mounted)
	for name := range strings.SplitSeq(dir, "/") {
		component, beside, ok := componentOf(name)
		if !ok || beside {
			return "", false
		}
		b.WriteString(component)
		b.WriteByte('/')
	}
	prefix = b.String()
	return prefix, len(prefix) <= maxKey && !isOwn(prefix, mounted)
}
