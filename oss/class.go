package oss

import (
	"context"

	"github.com/pailfs/pailfs/oss/limiter"
)

// Class says on whose behalf a request is made.
type Class = limiter.Class

// The request classes, most urgent first; see package limiter.
const (
	Demand   = limiter.Demand
	Prefetch = limiter.Prefetch
	Upload   = limiter.Upload
)

// WithPromotion returns a context for a request that may become more urgent, and the
// function that makes it so; see [limiter.WithPromotion]. A read that is in flight
// already is hedged from then on if its answer is late.
func WithPromotion(ctx context.Context) (promotable context.Context, promote func()) {
	return limiter.WithPromotion(ctx)
}

// WithWithdrawal returns a context for a request that perhaps nobody wants any more
// before its turn has come, and the function that says so; see [limiter.WithWithdrawal].
func WithWithdrawal(ctx context.Context) (withdrawable context.Context, withdraw func()) {
	return limiter.WithWithdrawal(ctx)
}
