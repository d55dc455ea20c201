package writeback

import "context"

// turn is a lock that may be held for as long as a download takes: whoever is called
// off waits for it no longer. Its capacity is one.
type turn chan struct{}

// Lock waits for as long as it takes.
func (t turn) Lock() { t <- struct{}{} }

// Unlock lets the next one go on.
func (t turn) Unlock() { <-t }

// wait is Lock that ends with ctx, whose error it returns.
func (t turn) wait(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try takes the lock if it is free.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}
