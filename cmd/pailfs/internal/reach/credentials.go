package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss/credentials"
)

// OpenCredentials reads the keys that the settings name, and takes what held them out of this
// process's environment. The warning, if any, is that they go over the network unprotected.
func OpenCredentials(l *config.Loaded, log *slog.Logger) (source *credentials.Source, warning string, err error) {
	c := &l.Config
	if c.Credentials == "sts" && os.Getenv("OSS_SESSION_TOKEN") == "" {
		return nil, "", errors.New("credentials sts: the environment variable OSS_SESSION_TOKEN is not set: set it, or use --credentials env")
	}
	source, err = credentials.Open(credentialsConfig(c), log)
	switch {
	case errors.Is(err, credentials.ErrTokenExposed):
		return nil, "", l.Refuse("endpoint", fmt.Errorf("%s: %w: write https://, or set allow-plain-http", c.Endpoint, err))
	case err != nil:
		return nil, "", credentialsRemedy(c, err)
	}
	forgetSecrets(c.Credentials)
	if credentials.Exposed(c.Endpoint) {
		warning = fmt.Sprintf("the endpoint %s is plain HTTP: everybody on the way can read and change what is sent; write https://", c.Endpoint)
	}
	return source, warning, nil
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
func credentialsConfig(c *config.Config) credentials.Config {
	kinds := map[string]credentials.Kind{
		"env":          credentials.Environment,
		"sts":          credentials.Environment,
		"file":         credentials.File,
		"ecs-ram-role": credentials.ECSRole,
		"oidc":         credentials.OIDC,
		"default":      credentials.Chain,
		"anonymous":    credentials.Anonymous,
	}
	return credentials.Config{
		Kind: kinds[c.Credentials], File: c.CredentialsFile, RoleName: c.RoleName,
		RefuseTokens: credentials.Exposed(c.Endpoint) && !c.AllowPlainHTTP,
	}
}
