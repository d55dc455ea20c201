package manifest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/oss"
)

// Source is what [Live] asks for names.
type Source interface {
	oss.Lister
	oss.Stater
}

// LiveConfig says what part of a bucket is shown and how long answers are
// believed. The zero value shows a whole bucket.
type LiveConfig struct {
	// Prefix is the mounted part of the bucket: "" or a key ending with a slash.
	Prefix string
	// TTL is how long a listed name is believed after the request that told it was
	// sent. Zero means 60 seconds.
	TTL time.Duration
	// NegativeTTL is how long a name is believed not to exist, unless the whole
	// directory is known, which then says so for TTL. Zero means the smaller of
	// 5 seconds and TTL.
	NegativeTTL time.Duration
	// MaxBytes bounds the memory of remembered names. Zero means 128 MiB.
	MaxBytes int64
}

// Live is the [Tree] over listings.
type Live struct{}

var _ Tree = (*Live)(nil)

// NewLive returns a tree over the keys of b that begin with cfg.Prefix.
func NewLive(cfg LiveConfig, b Source, reg prometheus.Registerer, log *slog.Logger) (*Live, error) {
	return nil, errors.ErrUnsupported
}

// Lookup implements [Tree].
func (l *Live) Lookup(ctx context.Context, dir, name string) (Entry, Validity, error) {
	return Entry{}, Validity{}, errors.ErrUnsupported
}

// ReadDir implements [Tree].
func (l *Live) ReadDir(ctx context.Context, dir, after string, max int) ([]Entry, Validity, error) {
	return nil, Validity{}, errors.ErrUnsupported
}

// ReadLink implements [Tree].
func (l *Live) ReadLink(ctx context.Context, e Entry) (string, error) {
	return "", errors.ErrUnsupported
}

// Problems implements [Tree].
func (l *Live) Problems() Problems { return Problems{} }

// Forget drops what is known of name in dir, so that the next Lookup asks
// again. It is for callers that met [oss.ErrChanged].
func (l *Live) Forget(dir, name string) {}

// Close stops the requests that run in the background and waits for them.
func (l *Live) Close() error { return nil }
