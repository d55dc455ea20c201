// Package control carries requests from programs to the daemon that serves a
// mount, through one ioctl on any directory of it.
package control

import (
	"context"
	"errors"
	"log/slog"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// Caller is the process that made a request, as the kernel reports it.
type Caller struct {
	UID, GID, PID uint32
}

// Access says who may call a method.
type Access uint8

// The levels of access.
const (
	// Owner lets root and the daemon's own user call.
	Owner Access = iota
	// Anyone lets every user call who can open a directory of the mount.
	Anyone
)

// MuxConfig is the configuration of a [Mux].
type MuxConfig struct {
	// OwnerUID is the user that, beside root, may call [Owner] methods.
	OwnerUID uint32
	// Version is the version of the daemon, told to clients.
	Version string
}

// Mux routes requests to registered methods.
type Mux struct{}

// NewMux returns a Mux that knows the method hello.
func NewMux(cfg MuxConfig, reg prometheus.Registerer, log *slog.Logger) *Mux { return &Mux{} }

// Handle registers fn as method.
func Handle[P, R any](m *Mux, method string, access Access, fn func(ctx context.Context, c Caller, params P) (R, error)) {
}

// ServeControl answers one ioctl.
func (m *Mux) ServeControl(ctx context.Context, caller Caller, cmd uint32, input, output []byte) (n int32, errno syscall.Errno) {
	return 0, syscall.ENOTTY
}

// Close cancels the calls that run and waits for them.
func (m *Mux) Close() error { return nil }

// Client calls the daemon behind a mount.
type Client struct{}

// Dial opens the mount that path, any directory in it, belongs to.
func Dial(path string) (*Client, error) { return nil, errors.ErrUnsupported }

// Call calls method with params and stores its result in result.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return errors.ErrUnsupported
}

// Close releases the mount.
func (c *Client) Close() error { return nil }
