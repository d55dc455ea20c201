package limiter

import (
	"context"
	"sync"
)

// WithWithdrawal returns a context for a request that perhaps nobody wants any more before
// its turn has come, and the function that says so. After withdraw, whatever waits for its turn
// under the context, or would have to, fails with [context.Canceled]. What is in flight goes
// on: to break it off would cost its connection, and the answer that is paid for already.
//
// withdraw may be called from any goroutine, more than once, and after the request has ended.
func WithWithdrawal(ctx context.Context) (withdrawable context.Context, withdraw func()) {
	withdrawn := make(chan struct{})
	return context.WithValue(ctx, withdrawalKey{}, withdrawn), sync.OnceFunc(func() { close(withdrawn) })
}

type withdrawalKey struct{}

// withdrawalOf returns what is closed when the request is withdrawn, nil if none can be.
func withdrawalOf(ctx context.Context) <-chan struct{} {
	withdrawn, _ := ctx.Value(withdrawalKey{}).(chan struct{})
	return withdrawn
}
