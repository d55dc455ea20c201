package reach

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/safepath"
)

// ExposablePath is a path of the configuration that others should not be able to
// replace.
type ExposablePath struct {
	Setting, Path string
	// refuse: what anyone can replace is refused. Else it is warned of: the cache
	// looks for itself at whose directory it opens, and trusts nothing in it unread.
	refuse bool
}

// ExposablePaths returns those that are set.
func ExposablePaths(c *config.Config) []ExposablePath {
	var paths []ExposablePath
	if c.LogFile != "" {
		paths = append(paths, ExposablePath{"log-file", c.LogFile, true})
	}
	if file := c.AuditFile(); file != "" {
		paths = append(paths, ExposablePath{"audit", file, true})
	}
	if c.Credentials == "file" {
		path := c.CredentialsFile
		if home, err := os.UserHomeDir(); path == "" && err == nil {
			path = filepath.Join(home, ".alibabacloud", "credentials")
		}
		if path != "" {
			paths = append(paths, ExposablePath{"credentials-file", path, true})
		}
	}
	if c.CacheDir != "" {
		paths = append(paths, ExposablePath{"cache-dir", c.CacheDir, false})
	}
	return paths
}

// RefuseExposed refuses paths in place of which anyone could put something else. What
// cannot be looked at is told of by whoever opens it.
func RefuseExposed(l *config.Loaded) error {
	for _, p := range ExposablePaths(&l.Config) {
		found, err := safepath.Find(p.Path)
		if err != nil || !p.refuse {
			continue
		}
		if e, ok := safepath.Worst(found); ok && e.Anyone {
			return l.Refuse(p.Setting, fmt.Errorf("%s can be replaced by others, for %s: take the right away with chmod o-w %s, or choose another path", p.Path, e, e.Path))
		}
	}
	return nil
}

// Exposed returns a warning if others can put something else in place of the path that a setting
// names, else "".
func Exposed(setting, path string) string {
	found, err := safepath.Find(path)
	if err != nil {
		return "" // whoever opens it tells
	}
	if e, ok := safepath.Worst(found); ok {
		return fmt.Sprintf("--%s %s can be replaced by others, for %s", setting, path, e)
	}
	return ""
}
