package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/safepath"
	"github.com/pailfs/pailfs/oss"
)

// exposablePath is a path of the configuration that others should not be able to
// replace.
type exposablePath struct {
	setting, path string
	// refuse: what anyone can replace is refused. Else it is warned of: the cache
	// looks for itself at whose directory it opens, and trusts nothing in it unread.
	refuse bool
}

// exposablePaths returns those that are set.
func exposablePaths(c *config.Config) []exposablePath {
	var paths []exposablePath
	if c.LogFile != "" {
		paths = append(paths, exposablePath{"log-file", c.LogFile, true})
	}
	if c.Credentials == "file" {
		path := c.CredentialsFile
		if home, err := os.UserHomeDir(); path == "" && err == nil {
			path = filepath.Join(home, ".alibabacloud", "credentials")
		}
		if path != "" {
			paths = append(paths, exposablePath{"credentials-file", path, true})
		}
	}
	if c.CacheDir != "" {
		paths = append(paths, exposablePath{"cache-dir", c.CacheDir, false})
	}
	return paths
}

// refuseExposed refuses paths in place of which anyone could put something else. What
// cannot be looked at is told of by whoever opens it.
func refuseExposed(l *config.Loaded) error {
	for _, p := range exposablePaths(&l.Config) {
		found, err := safepath.Find(p.path)
		if err != nil || !p.refuse {
			continue
		}
		if e, ok := safepath.Worst(found); ok && e.Anyone {
			return l.Refuse(p.setting, fmt.Errorf("%s can be replaced by others, for %s: take the right away with chmod o-w %s, or choose another path", p.path, e, e.Path))
		}
	}
	return nil
}

// warnOfPath warns if others can put something else in place of path.
func (d *daemon) warnOfPath(setting, path string) {
	found, err := safepath.Find(path)
	if err != nil {
		return // whoever opens it tells
	}
	if e, ok := safepath.Worst(found); ok {
		d.warnings.add(fmt.Sprintf("--%s %s can be replaced by others, for %s", setting, path, e))
	}
}

// checkPlainHTTP returns a warning if requests leave this machine unprotected, and
// refuses to send the token of a session so: whoever reads it on the way has what
// the keys' owner thought would end by itself.
func checkPlainHTTP(c *config.Config, credentials *oss.CredentialSource) (warning string, err error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" || loopback(u.Hostname()) {
		return "", nil //nolint:nilerr // what is no address was refused before
	}
	if credentials.Temporary() && !c.AllowPlainHTTP {
		return "", fmt.Errorf("%s is plain HTTP, and the token of a session would be sent for everybody on the way to read: write https://, or set allow-plain-http", c.Endpoint)
	}
	return fmt.Sprintf("the endpoint %s is plain HTTP: everybody on the way can read and change what is sent; write https://", c.Endpoint), nil
}

// loopback reports whether host is this machine, without asking a resolver.
func loopback(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().IsLoopback()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".") == "localhost"
}
