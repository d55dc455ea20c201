package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/prefetch/control"
)

// controlAdapter makes the mux what fs wants; neither package knows the other.
type controlAdapter struct{ mux *control.Mux }

var _ pailfs.Control = controlAdapter{}

// ServeControl implements [pailfs.Control].
func (a controlAdapter) ServeControl(ctx context.Context, caller pailfs.Caller, cmd uint32, input, output []byte) (int32, syscall.Errno) {
	return a.mux.ServeControl(ctx, control.Caller{UID: caller.UID, GID: caller.GID, TID: caller.TID, Dir: caller.Dir, DirID: caller.DirID, Handle: caller.Handle}, cmd, input, output)
}

// Released implements [pailfs.Control].
func (a controlAdapter) Released(handle uint64) { a.mux.Released(handle) }

// The methods that this program answers, beside hello.
const (
	methodStatus = "status"
	methodUmount = "umount"
	methodFlush  = "flush"
	methodDrain  = "drain"
	methodAccept = "accept"
)

// callHello asks the daemon of the mount at path who it is.
func callHello(ctx context.Context, path string) error {
	return withDaemon(ctx, path, func(*control.Client) error { return nil })
}

// callDaemon calls one method of the daemon of the mount at path.
func callDaemon(ctx context.Context, path, method string, params, result any) error {
	return withDaemon(ctx, path, func(c *control.Client) error {
		return c.Call(ctx, method, params, result)
	})
}

// withDaemon runs f with a connection to the daemon of the mount at path. When
// ctx ends first it returns, and what waits for a stuck daemon is left behind.
func withDaemon(ctx context.Context, path string, f func(*control.Client) error) error {
	done := make(chan error, 1)
	go func() {
		c, err := control.Dial(path)
		if err != nil {
			done <- err
			return
		}
		err = f(c)
		done <- errors.Join(err, c.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the daemon does not answer: %w", ctx.Err())
	}
}
