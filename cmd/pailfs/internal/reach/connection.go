package reach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/limiter"
)

// Connection is the way to the buckets of one service, for a command.
type Connection struct {
	// Settings are those in force, Log is where its parts log.
	Settings    *config.Loaded
	Log         *slog.Logger
	credentials *credentials.Source
	limiter     *limiter.Limiter
	clients     map[string]*oss.Client
}

// Connect reads the credentials. It makes no request.
func Connect(p command.Program, l *config.Loaded) (*Connection, error) {
	c := &l.Config
	if err := RefuseExposed(l); err != nil {
		return nil, err
	}
	level := slog.LevelWarn
	if l.Origin("log-level").Layer != config.Default {
		if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
			return nil, command.Usage(err)
		}
	}
	conn := &Connection{
		Settings: l, clients: map[string]*oss.Client{},
		Log: slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level})),
	}
	var warning string
	var err error
	if conn.credentials, warning, err = OpenCredentials(l, conn.Log); err != nil {
		return nil, err
	}
	if warning != "" {
		p.Notice(warning)
	}
	if conn.limiter, err = limiter.New(limiter.Config{}, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("limit requests: %w", err), conn.Close())
	}
	return conn, nil
}

// Bucket returns the bucket called name, and proves with one request that prefix of
// it can be listed.
func (c *Connection) Bucket(ctx context.Context, name, prefix string) (oss.Bucket, error) {
	client, err := c.Client(name)
	if err != nil {
		return nil, err
	}
	checking, cancel := context.WithTimeout(ctx, time.Duration(c.Settings.StartTimeout))
	defer cancel()
	if _, err := client.Preflight(checking, prefix); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("oss://%s at %s did not answer within %s: check the endpoint and the network, or raise --start-timeout",
				name, c.Settings.Endpoint, c.Settings.StartTimeout)
		}
		return nil, err
	}
	return client.As(oss.Prefetch), nil
}

// Unchecked returns the bucket called name without a request.
func (c *Connection) Unchecked(name string) (oss.Bucket, error) {
	client, err := c.Client(name)
	if err != nil {
		return nil, err
	}
	return client.As(oss.Prefetch), nil
}

// Client returns the client of the bucket called name, without a request.
func (c *Connection) Client(name string) (*oss.Client, error) {
	if client := c.clients[name]; client != nil {
		return client, nil
	}
	client, err := oss.Open(oss.Config{
		Endpoint: c.Settings.Endpoint, Bucket: name, Region: c.Settings.Region, Credentials: c.credentials,
	}, c.limiter, nil, c.Log)
	if err != nil {
		return nil, fmt.Errorf("open oss://%s: %w", name, err)
	}
	c.clients[name] = client
	return client, nil
}

// Throttled returns how often the service said to slow down.
func (c *Connection) Throttled() uint64 { return c.limiter.Stats().Throttled }

// Close ends what runs.
func (c *Connection) Close() error {
	var failed error
	for _, client := range c.clients {
		failed = errors.Join(failed, client.Close())
	}
	return errors.Join(failed, c.credentials.Close())
}

// ParseObject reads oss://bucket/key.
func ParseObject(url string) (bucket, key string, err error) {
	rest, ok := strings.CutPrefix(url, "oss://")
	bucket, key, has := strings.Cut(rest, "/")
	if !ok || !has || bucket == "" || key == "" {
		return "", "", fmt.Errorf("%q is no object: write oss://bucket/key", url)
	}
	return bucket, key, nil
}
