package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Patterns are paths relative to the mount's root: files, folders, or with an
// asterisk all that path.Match matches.
type Patterns []string

// UnmarshalText reads patterns separated by commas.
func (p *Patterns) UnmarshalText(text []byte) error {
	var patterns Patterns
	if strings.TrimSpace(string(text)) == "" {
		*p = nil
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		pattern := strings.TrimSuffix(strings.TrimSpace(part), "/")
		switch _, err := path.Match(pattern, ""); {
		case err != nil:
			return fmt.Errorf("%q is not a pattern: close its bracket, or put a backslash before it", part)
		case pattern == "":
			return fmt.Errorf("%q has an empty pattern: write paths relative to the mount, for example train,val", string(text))
		case strings.HasPrefix(pattern, "/"):
			return fmt.Errorf("%q begins with a slash: write it relative to the mount's root, for example %s", pattern, strings.TrimLeft(pattern, "/"))
		case slices.ContainsFunc(strings.Split(pattern, "/"), func(c string) bool { return c == "" || c == "." || c == ".." }):
			return fmt.Errorf("%q has an empty component, . or ..: write the path as it is listed", pattern)
		}
		patterns = append(patterns, pattern)
	}
	*p = patterns
	return nil
}

// MarshalText writes the patterns as UnmarshalText reads them.
func (p Patterns) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String returns the patterns as a user writes them.
func (p Patterns) String() string { return strings.Join(p, ",") }
