package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
)

// OpenCredentials reads the keys that the settings name, and takes what held them out of this
// process's environment. The warning, if any, is that they go over the network unprotected.
func OpenCredentials(l *config.Loaded, log *slog.Logger) (credentials *oss.CredentialSource, warning string, err error) {
	c := &l.Config
	if c.Credentials == "sts" && os.Getenv("OSS_SESSION_TOKEN") == "" {
		return nil, "", errors.New("credentials sts: the environment variable OSS_SESSION_TOKEN is not set: set it, or use --credentials env")
	}
	if credentials, err = oss.OpenCredentials(credentialsConfig(c), log); err != nil {
		return nil, "", credentialsRemedy(c, err)
	}
	forgetSecrets(c.Credentials)
	if warning, err = checkPlainHTTP(c, credentials); err != nil {
		return nil, "", errors.Join(l.Refuse("endpoint", err), credentials.Close())
	}
	return credentials, warning, nil
}

// credentialsRemedy adds what can be done about credentials that cannot be read.
func credentialsRemedy(c *config.Config, err error) error {
	switch {
	case c.Credentials == "env" || c.Credentials == "sts":
		return fmt.Errorf("%w: export the key's variables, or name another source with --credentials", err)
	case c.Credentials == "file" && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: name the file with --credentials-file", err)
	case c.Credentials == "file":
		return err // it says what to do
	default:
		return fmt.Errorf("%w: check --credentials %s, or name another source with it", err, c.Credentials)
	}
}

// credentialsConfig translates the settings.
func credentialsConfig(c *config.Config) oss.CredentialsConfig {
	kinds := map[string]oss.CredentialKind{
		"env":          oss.CredentialsEnvironment,
		"sts":          oss.CredentialsEnvironment,
		"file":         oss.CredentialsFile,
		"ecs-ram-role": oss.CredentialsECSRole,
		"oidc":         oss.CredentialsOIDC,
		"default":      oss.CredentialsChain,
		"anonymous":    oss.CredentialsAnonymous,
	}
	return oss.CredentialsConfig{Kind: kinds[c.Credentials], File: c.CredentialsFile, RoleName: c.RoleName}
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
