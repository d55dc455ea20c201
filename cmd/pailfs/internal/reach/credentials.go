package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

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
	credentials, err = oss.OpenCredentials(credentialsConfig(c), log)
	switch {
	case errors.Is(err, oss.ErrTokenExposed):
		return nil, "", l.Refuse("endpoint", fmt.Errorf("%s: %w: write https://, or set allow-plain-http", c.Endpoint, err))
	case err != nil:
		return nil, "", credentialsRemedy(c, err)
	}
	forgetSecrets(c.Credentials)
	if oss.Exposed(c.Endpoint) {
		warning = fmt.Sprintf("the endpoint %s is plain HTTP: everybody on the way can read and change what is sent; write https://", c.Endpoint)
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
	return oss.CredentialsConfig{
		Kind: kinds[c.Credentials], File: c.CredentialsFile, RoleName: c.RoleName,
		RefuseTokens: oss.Exposed(c.Endpoint) && !c.AllowPlainHTTP,
	}
}
