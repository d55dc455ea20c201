package oss

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// LimiterConfig bounds the requests in flight. The zero value is the default.
type LimiterConfig struct {
	// Initial is the limit at the start; 0 means 64.
	Initial int
	// Min is the limit that no congestion lowers further; 0 means 8.
	Min int
	// Max is the limit that no idleness raises further; 0 means 512.
	Max int
}

// LimiterStats is the state of a [Limiter] at one moment.
type LimiterStats struct {
	// Limit is the number of requests that may be in flight now.
	Limit int
	// InFlight and Waiting count requests by [Class].
	InFlight, Waiting [3]int
	// Rate is the number of requests a second that may start while the server
	// throttles; 0 means no bound.
	Rate float64
	// Throttled counts the answers that asked to slow down.
	Throttled uint64
}

// Limiter decides how many requests may be in flight and whose turn it is.
type Limiter struct{}

// NewLimiter returns a limiter for any number of clients of one service.
func NewLimiter(cfg LimiterConfig, reg prometheus.Registerer) (*Limiter, error) {
	return &Limiter{}, nil
}

// Stats returns the present state.
func (l *Limiter) Stats() LimiterStats { return LimiterStats{} }

// WithPromotion returns a context for a request that may become more urgent
// while it waits, and the function that makes it so: after promote, whatever is
// or will be waiting in a [Limiter] under that context counts as [Demand].
// promote may be called from any goroutine and more than once.
func WithPromotion(ctx context.Context) (promoted context.Context, promote func()) {
	return ctx, func() {}
}
