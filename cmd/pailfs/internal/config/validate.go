package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The least sizes with which the cache works at all: a few extents of 8 MiB in
// flight, and an SSD tier that holds more than it fetches at once.
const (
	minMemory    Size = 64 << 20
	minCacheSize Size = 64 << 20
)

// validate refuses values that can make no sense on any machine. What depends on
// this machine (its disks, its memory) is checked where it is used.
func (l *Loaded) validate() error {
	checks := []struct {
		name  string
		check func(*Config) error
	}{
		{"endpoint", (*Config).checkEndpoint},
		{"region", (*Config).checkRegion},
		{"credentials-file", (*Config).checkCredentialsFile},
		{"role-name", (*Config).checkRoleName},
		{"cache-dir", func(c *Config) error { return absolute(c.CacheDir) }},
		{"cache-size", (*Config).checkCacheSize},
		{"memory", (*Config).checkMemory},
		{"policy-warm", (*Config).checkPolicyWarm},
		{"immutable", (*Config).checkImmutable},
		{"manifest", (*Config).checkManifest},
		{"manifest-poll", (*Config).checkManifestPoll},
		{"attrs", (*Config).checkAttrs},
		{"spot-notice", (*Config).checkSpotNotice},
		{"policy-through", (*Config).checkPolicyThrough},
		{"write", (*Config).checkWrite},
		{"staging-size", (*Config).checkStagingSize},
		{"no-open", (*Config).checkNoOpen},
		{"umask", (*Config).checkUmask},
		{"http", (*Config).checkHTTP},
		{"http-required", func(c *Config) error { return c.needsHTTP(c.HTTPRequired) }},
		{"http-allow-remote", func(c *Config) error { return c.needsHTTP(c.HTTPAllowRemote) }},
		{"http-hosts", (*Config).checkHTTPHosts},
		{"http-debug", func(c *Config) error { return c.needsHTTP(c.HTTPDebug) }},
		{"http-debug-allow-remote", (*Config).checkHTTPDebugAllowRemote},
		{"log-file", func(c *Config) error { return absolute(c.LogFile) }},
		{"audit", (*Config).checkAudit},
		{"audit-full", (*Config).checkAuditFull},
		{"start-timeout", (*Config).checkStartTimeout},
	}
	for _, c := range checks {
		if err := c.check(&l.Config); err != nil {
			return l.Refuse(c.name, err)
		}
	}
	return nil
}

// Refuse returns err with the name of the setting that it is about and where its
// value came from.
func (l *Loaded) Refuse(name string, err error) error {
	origin := l.Origin(name)
	if origin.Layer == Default || origin.Where == "--"+name {
		return fmt.Errorf("--%s: %w", name, err)
	}
	return fmt.Errorf("--%s (from %s): %w", name, origin, err)
}

func (c *Config) checkEndpoint() error {
	if c.Endpoint == "" {
		return nil // asked for where it is needed
	}
	text := c.Endpoint
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an address: write scheme and host, for example https://oss-cn-hangzhou.aliyuncs.com", c.Endpoint)
	}
	if u.User != nil {
		return fmt.Errorf("an address must not hold a key: set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or use --credentials=file")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q has the scheme %s: write http:// or https://", c.Endpoint, u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q has the port %s: write a port from 1 to 65535", c.Endpoint, port)
		}
	}
	return nil
}

func (c *Config) checkRegion() error {
	if region, ok := strings.CutPrefix(c.Region, "oss-"); ok {
		return fmt.Errorf("%q is part of an endpoint: write the region, %s", c.Region, region)
	}
	if strings.Trim(c.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%q is not a region: write its id, for example cn-hangzhou", c.Region)
	}
	return nil
}

func (c *Config) checkCredentialsFile() error {
	if c.Credentials != "file" && c.CredentialsFile != "" {
		return fmt.Errorf("%q is not used with credentials=%s: set credentials to file", c.CredentialsFile, c.Credentials)
	}
	return absolute(c.CredentialsFile)
}

func (c *Config) checkRoleName() error {
	if c.RoleName != "" && c.Credentials != "ecs-ram-role" {
		return fmt.Errorf("%q is not used with credentials=%s: set credentials to ecs-ram-role", c.RoleName, c.Credentials)
	}
	return nil
}

func (c *Config) checkCacheSize() error {
	switch {
	case c.CacheSize != 0 && c.CacheDir == "":
		return fmt.Errorf("%s has no directory: set cache-dir as well", c.CacheSize)
	case c.CacheSize != 0 && c.CacheSize < minCacheSize:
		return fmt.Errorf("%s is too small: write %s or more, or auto", c.CacheSize, minCacheSize)
	}
	return nil
}

func (c *Config) checkMemory() error {
	if c.Memory != 0 && c.Memory < minMemory {
		return fmt.Errorf("%s is too small: write %s or more, or auto", c.Memory, minMemory)
	}
	return nil
}

func (c *Config) checkImmutable() error {
	if c.Immutable && !c.ReadOnly {
		return fmt.Errorf("true needs a mount that cannot be written: set read-only as well")
	}
	return nil
}

// The modes of [Config.Manifest] that are no path.
const (
	ManifestAuto   = "auto"
	ManifestFollow = "follow"
	ManifestFrozen = "frozen"
	ManifestOff    = "off"
)

// leastPoll is how often a manifest may be asked for at most.
const leastPoll = Duration(100 * time.Millisecond)

// Frozen reports whether a manifest was asked for that is the truth for the life of
// the mount, which then cannot be written.
func (c *Config) Frozen() bool {
	return c.Manifest == ManifestFrozen || filepath.IsAbs(c.Manifest)
}

func (c *Config) checkManifest() error {
	switch c.Manifest {
	case ManifestAuto, ManifestFrozen, ManifestOff:
		return nil
	case ManifestFollow:
		if c.Immutable {
			return fmt.Errorf("follow shows changes, and immutable promises that there are none: use frozen, or drop immutable")
		}
		return nil
	}
	if !filepath.IsAbs(c.Manifest) {
		return fmt.Errorf("%q is neither auto, follow, frozen or off nor the whole path of a file: write one of these", c.Manifest)
	}
	return nil
}

// Writable tells whether the mount can be written: there must be a disk that keeps
// what was written until it is uploaded.
func (c *Config) Writable() bool { return !c.ReadOnly && !c.Frozen() && c.CacheDir != "" }

func (c *Config) checkPolicyThrough() error {
	if len(c.PolicyThrough) > 0 && !c.Writable() {
		return fmt.Errorf("%s is for a mount that can be written: set cache-dir, and not read-only", c.PolicyThrough)
	}
	return nil
}

func (c *Config) checkSpotNotice() error {
	if c.SpotNotice == "off" || c.SpotNotice == "ecs" {
		return nil
	}
	if u, err := url.Parse(c.SpotNotice); err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%q is neither off, ecs nor the address of a metadata service: write it with http://", c.SpotNotice)
	}
	return nil
}

// KeepsAttrs reports whether attributes of files are kept in the object store, unless a
// manifest without them is followed.
func (c *Config) KeepsAttrs() bool {
	return c.Attrs == "oss" || c.Attrs == "auto" && c.Writable()
}

func (c *Config) checkAttrs() error {
	if c.Attrs == "oss" && c.Frozen() {
		return fmt.Errorf("oss asks the objects, and a frozen manifest shows what it holds: build the manifest with --attrs, or set manifest to follow or off")
	}
	return nil
}

func (c *Config) checkManifestPoll() error {
	if c.ManifestPoll < leastPoll {
		return fmt.Errorf("%s is too often: write %s or more", c.ManifestPoll, leastPoll)
	}
	return nil
}

func (c *Config) checkWrite() error {
	if c.Write == "through" && !c.Writable() {
		return fmt.Errorf("through needs a mount that can be written: set cache-dir, and not read-only")
	}
	return nil
}

func (c *Config) checkStagingSize() error {
	switch {
	case c.StagingSize != 0 && !c.Writable():
		return fmt.Errorf("%s is for a mount that can be written: set cache-dir, and not read-only", c.StagingSize)
	case c.StagingSize != 0 && c.StagingSize < minCacheSize:
		return fmt.Errorf("%s is too small: write %s or more, or auto", c.StagingSize, minCacheSize)
	}
	return nil
}

func (c *Config) checkNoOpen() error {
	if c.NoOpen == "on" && !c.Immutable && !c.Frozen() {
		return fmt.Errorf("on needs names and content that do not change: set read-only and immutable as well, or manifest to frozen")
	}
	return nil
}

// AuditFile returns the file that takes the audit, "" if none does.
func (c *Config) AuditFile() string {
	if c.Audit == "syslog" || c.Audit == "journald" {
		return ""
	}
	return c.Audit
}

func (c *Config) checkAudit() error {
	switch file := c.AuditFile(); {
	case file != "" && !filepath.IsAbs(file):
		return fmt.Errorf("%q is neither syslog, journald nor the whole path of a file: write one of these", c.Audit)
	case file != "" && file == c.LogFile:
		return fmt.Errorf("%s is the log-file, too: give each a file of its own", file)
	case c.Audit != "" && c.NoOpen == "on":
		return fmt.Errorf("%s is to show who opens files, which no-open hides: set no-open to auto or off", c.Audit)
	}
	return nil
}

func (c *Config) checkAuditFull() error {
	if c.AuditFull != "count" && c.Audit == "" {
		return fmt.Errorf("%s is for an audit, and there is none: set audit as well", c.AuditFull)
	}
	return nil
}

func (c *Config) checkUmask() error {
	if c.Umask&0o500 != 0 {
		return fmt.Errorf("%s takes away the owner's own right to read: write one that begins with 0 or 2, for example 077", c.Umask)
	}
	return nil
}

func (c *Config) checkHTTP() error {
	if c.HTTP == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.ListenAddress())
	if err != nil {
		return fmt.Errorf("%q is not an address: write a port or host:port, for example 9321", c.HTTP)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || (n == 0 && port != "0") {
		return fmt.Errorf("%q has the port %q: write a port from 0 to 65535", c.HTTP, port)
	}
	if c.HTTPAllowRemote || host == "localhost" {
		return nil
	}
	address, err := netip.ParseAddr(host)
	if err != nil || !address.IsLoopback() {
		return fmt.Errorf("%q can be reached from other machines: write 127.0.0.1:%s, or set http-allow-remote", c.HTTP, port)
	}
	return nil
}

// ListenAddress returns the address in HTTP as net.Listen takes it: a port alone
// listens on the loopback address.
func (c *Config) ListenAddress() string {
	port := strings.TrimPrefix(c.HTTP, ":")
	if strings.Trim(port, "0123456789") == "" && port != "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return c.HTTP
}

// needsHTTP refuses a setting that is about the server where there is none.
func (c *Config) needsHTTP(set bool) error {
	if set && c.HTTP == "" {
		return fmt.Errorf("true has no address: set http as well")
	}
	return nil
}

// WebHosts returns the names in HTTPHosts in lower case.
func (c *Config) WebHosts() []string {
	var names []string
	for name := range strings.SplitSeq(c.HTTPHosts, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (c *Config) checkHTTPHosts() error {
	if c.HTTPHosts != "" && !c.HTTPAllowRemote {
		return fmt.Errorf("%q is for other machines, which cannot ask: set http-allow-remote as well", c.HTTPHosts)
	}
	for _, name := range c.WebHosts() {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return fmt.Errorf("%q is not a name: write it without scheme, port and asterisk, for example node-1.example.com", name)
		}
	}
	return nil
}

func (c *Config) checkHTTPDebugAllowRemote() error {
	if c.HTTPDebugAllowRemote && (!c.HTTPDebug || !c.HTTPAllowRemote) {
		return fmt.Errorf("true says who may ask for what is not served: set http-debug and http-allow-remote as well")
	}
	return nil
}

func (c *Config) checkStartTimeout() error {
	if c.StartTimeout == 0 {
		return fmt.Errorf("0s leaves no time to ask the object store: write a duration above zero, for example 30s")
	}
	return nil
}

// absolute refuses a path that depends on the working directory, which a daemon
// does not keep.
func absolute(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%q is relative: write the whole path, beginning with /", path)
	}
	return nil
}

// checkPolicyWarm refuses patterns where paths are needed.
func (c *Config) checkPolicyWarm() error {
	for _, p := range c.PolicyWarm {
		if strings.ContainsAny(p, "*?[") {
			return fmt.Errorf("%q is a pattern: name the files and folders themselves", p)
		}
	}
	return nil
}
