// Package pause waits for a time that may be cut short.
package pause

import (
	"context"
	"time"
)

// For waits for d and reports whether ctx has not ended.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
