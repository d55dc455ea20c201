package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
)

// storeFlags are the settings of commands that speak to the object store and mount
// nothing. They are those of mount: what a test compares.
type storeFlags struct {
	ConfigFile      string          `name:"config" placeholder:"FILE" help:"YAML file of settings; PAILFS_CONFIG names one as well."`
	Endpoint        string          `name:"endpoint" placeholder:"URL" group:"store" help:"Address of the object store, for example https://oss-cn-hangzhou-internal.aliyuncs.com."`
	AllowPlainHTTP  bool            `name:"allow-plain-http" group:"store" help:"Allow plain HTTP with the token of a session, as for mount."`
	Region          string          `name:"region" placeholder:"ID" group:"store" help:"Region of the bucket, for example cn-hangzhou."`
	Credentials     string          `name:"credentials" placeholder:"KIND" group:"store" oneof:"env,file,sts,ecs-ram-role,oidc,default,anonymous" help:"Where the keys come from, as for mount."`
	CredentialsFile string          `name:"credentials-file" placeholder:"PATH" group:"store" help:"JSON file of keys, for credentials=file."`
	RoleName        string          `name:"role-name" placeholder:"NAME" group:"store" help:"RAM role of the machine, for credentials=ecs-ram-role."`
	StartTimeout    config.Duration `name:"start-timeout" placeholder:"TIME" group:"store" help:"How long the object store may take to answer the first request."`
	LogLevel        string          `name:"log-level" placeholder:"LEVEL" group:"store" oneof:"debug,info,warn,error" help:"Least important messages that are written to standard error; warn if not said."`
}

// load returns the configuration in force.
func (f *storeFlags) load(p command.Program, parsed *kong.Context) (*config.Loaded, error) {
	return f.loadWith(p, parsed, func(*config.Config) {})
}

// loadWith is load with the settings of further flags, which set gives and names
// names.
func (f *storeFlags) loadWith(p command.Program, parsed *kong.Context, set func(s *config.Config), names ...string) (*config.Loaded, error) {
	all := settingsFlags{ConfigFile: f.ConfigFile}
	s := &all.Settings
	s.Endpoint, s.Region, s.Credentials, s.CredentialsFile = f.Endpoint, f.Region, f.Credentials, f.CredentialsFile
	s.AllowPlainHTTP = f.AllowPlainHTTP
	s.RoleName, s.StartTimeout, s.LogLevel = f.RoleName, f.StartTimeout, f.LogLevel
	set(s)
	l, err := all.loadOnly(p, parsed, append(storeFlagNames(), names...))
	if err != nil {
		return nil, err
	}
	if l.Endpoint == "" {
		return nil, command.Usage(errors.New("no endpoint is set: give --endpoint, for example https://oss-cn-hangzhou-internal.aliyuncs.com"))
	}
	return l, nil
}

// storeFlagNames are the settings among the storeFlags.
func storeFlagNames() []string {
	return []string{"endpoint", "allow-plain-http", "region", "credentials", "credentials-file", "role-name", "start-timeout", "log-level"}
}

// connection is the way to the buckets of one service, for a command.
type connection struct {
	settings    *config.Loaded
	log         *slog.Logger
	credentials *oss.CredentialSource
	limiter     *oss.Limiter
	clients     map[string]*oss.Client
}

// connect reads the credentials. It makes no request.
func connect(p command.Program, l *config.Loaded) (*connection, error) {
	c := &l.Config
	if err := refuseExposed(l); err != nil {
		return nil, err
	}
	if c.Credentials == "sts" && os.Getenv("OSS_SESSION_TOKEN") == "" {
		return nil, errors.New("credentials sts: the environment variable OSS_SESSION_TOKEN is not set: set it, or use --credentials env")
	}
	level := slog.LevelWarn
	if l.Origin("log-level").Layer != config.Default {
		if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
			return nil, command.Usage(err)
		}
	}
	conn := &connection{
		settings: l, clients: map[string]*oss.Client{},
		log: slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level})),
	}
	var err error
	if conn.credentials, err = oss.OpenCredentials(credentialsConfig(c), conn.log); err != nil {
		return nil, credentialsRemedy(c, err)
	}
	forgetSecrets(c.Credentials)
	warning, err := checkPlainHTTP(c, conn.credentials)
	if err != nil {
		return nil, errors.Join(l.Refuse("endpoint", err), conn.close())
	}
	if warning != "" {
		p.Notice(warning)
	}
	if conn.limiter, err = oss.NewLimiter(oss.LimiterConfig{}, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("limit requests: %w", err), conn.close())
	}
	return conn, nil
}

// bucket returns the bucket called name, and proves with one request that prefix of
// it can be listed.
func (c *connection) bucket(ctx context.Context, name, prefix string) (oss.Bucket, error) {
	client, err := c.client(name)
	if err != nil {
		return nil, err
	}
	checking, cancel := context.WithTimeout(ctx, time.Duration(c.settings.StartTimeout))
	defer cancel()
	if _, err := client.Check(checking, prefix); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("oss://%s at %s did not answer within %s: check the endpoint and the network, or raise --start-timeout",
				name, c.settings.Endpoint, c.settings.StartTimeout)
		}
		return nil, err
	}
	return client.As(oss.Prefetch), nil
}

// unchecked returns the bucket called name without a request.
func (c *connection) unchecked(name string) (oss.Bucket, error) {
	client, err := c.client(name)
	if err != nil {
		return nil, err
	}
	return client.As(oss.Prefetch), nil
}

func (c *connection) client(name string) (*oss.Client, error) {
	if client := c.clients[name]; client != nil {
		return client, nil
	}
	client, err := oss.Open(oss.Config{
		Endpoint: c.settings.Endpoint, Bucket: name, Region: c.settings.Region, Credentials: c.credentials,
	}, c.limiter, nil, c.log)
	if err != nil {
		return nil, fmt.Errorf("open oss://%s: %w", name, err)
	}
	c.clients[name] = client
	return client, nil
}

// close ends what runs.
func (c *connection) close() error {
	var failed error
	for _, client := range c.clients {
		failed = errors.Join(failed, client.Close())
	}
	return errors.Join(failed, c.credentials.Close())
}

// parseObject reads oss://bucket/key.
func parseObject(url string) (bucket, key string, err error) {
	rest, ok := strings.CutPrefix(url, "oss://")
	bucket, key, has := strings.Cut(rest, "/")
	if !ok || !has || bucket == "" || key == "" {
		return "", "", fmt.Errorf("%q is no object: write oss://bucket/key", url)
	}
	return bucket, key, nil
}
