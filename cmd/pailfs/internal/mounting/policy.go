package mounting

import (
	"path"
	"strings"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// policy says what becomes of the content of paths: read (the rule: kept when it
// was read), warm (brought when the mount begins) or never (not kept).
type policy struct {
	prefix            string
	read, warm, never config.Patterns
}

// newPolicy returns the policy that the settings make.
func newPolicy(c *config.Config, prefix string) policy {
	return policy{prefix: prefix, read: c.PolicyRead, warm: c.PolicyWarm, never: c.PolicyNever}
}

// neverKeep returns what tells the cache which keys are not to be kept, or nil if
// all are. Of the patterns that a path fits, the longest counts.
func (p policy) neverKeep() func(key string) bool {
	if len(p.never) == 0 {
		return nil
	}
	return func(key string) bool {
		name, ok := strings.CutPrefix(key, p.prefix)
		if !ok {
			return false
		}
		never := longest(p.never, name)
		return never >= 0 && never > longest(p.read, name) && never > longest(p.warm, name)
	}
}

// writeThrough returns what tells of which paths close and fsync wait for the object
// store, or nil if of none.
func writeThrough(c *config.Config) func(name string) bool {
	rule := c.Write == "through"
	if !rule && len(c.PolicyThrough) == 0 {
		return nil
	}
	return func(name string) bool {
		through, back := longest(c.PolicyThrough, name), longest(c.PolicyBack, name)
		if through == back {
			return rule
		}
		return through > back
	}
}

// longest returns the length of the longest pattern that name fits, or -1.
func longest(patterns config.Patterns, name string) int {
	best := -1
	for _, pattern := range patterns {
		if fits(pattern, name) {
			best = max(best, len(pattern))
		}
	}
	return best
}

// fits reports whether a pattern means name: the name itself or a folder above it,
// or with an asterisk a name that path.Match matches, of the whole path if there
// is a slash in the pattern, else of its last component.
func fits(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return name == pattern || strings.HasPrefix(name, pattern+"/")
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil // it was validated
}
