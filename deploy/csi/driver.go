package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Name is the driver's name in Kubernetes.
const Name = "csi.pailfs.io"

// Config says which services a driver has. Node, Controller or both are set.
type Config struct {
	Node       *NodeConfig
	Controller *ControllerConfig
	// Version is the driver's.
	Version string
	Log     *slog.Logger
}

// ControllerConfig configures the controller's service.
type ControllerConfig struct {
	// Pailfs is the program pailfs, which says whether mountOptions are right.
	Pailfs string
}

// Driver answers the calls of an orchestrator.
type Driver struct {
	cfg    Config
	server *grpc.Server
	node   *node
}

// Open returns a driver. It serves nothing yet.
func Open(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg}
	d.server = grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	spec.RegisterIdentityServer(d.server, &identity{version: cfg.Version})
	if cfg.Node != nil {
		n, err := openNode(*cfg.Node, cfg.Log)
		if err != nil {
			return nil, err
		}
		d.node = n
		spec.RegisterNodeServer(d.server, n)
	}
	if cfg.Controller != nil {
		spec.RegisterControllerServer(d.server, newController(*cfg.Controller))
	}
	return d, nil
}

// Listen listens on a unix socket that root alone may use, in a directory that is made. One that a driver before has left is
// replaced.
func Listen(socket string) (net.Listener, error) {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close() // nothing was said
			return nil, fmt.Errorf("listen on %s: another driver answers there", socket)
		}
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", socket, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve answers calls until ctx ends, and then those that have begun. Meanwhile it removes the caches of this node that
// were not used for a week.
func (d *Driver) Serve(ctx context.Context, l net.Listener) error {
	if d.node != nil {
		sweeping, stop := context.WithCancel(ctx)
		var sweeper sync.WaitGroup
		sweeper.Go(func() { d.node.run(sweeping) })
		defer sweeper.Wait()
		defer stop()
	}
	stop := context.AfterFunc(ctx, d.server.GracefulStop)
	defer stop()
	return d.server.Serve(l)
}

// named are the requests that say for which volume they are.
type named interface{ GetVolumeId() string }

// intercept logs calls that fail, and never what they carry.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	reply, err := handle(ctx, request)
	method := path.Base(info.FullMethod)
	var id string
	if r, ok := request.(named); ok {
		id = r.GetVolumeId()
	}
	if err != nil {
		err = withCode(err)
		d.cfg.Log.Warn("call failed", "method", method, "volume", id, "code", grpcstatus.Code(err).String(), "error", grpcstatus.Convert(err).Message(),
			"duration", time.Since(began))
		return nil, err
	}
	d.cfg.Log.Debug("call", "method", method, "volume", id, "duration", time.Since(began))
	return reply, nil
}

// withCode gives an error that has no code the one that fits.
func withCode(err error) error {
	if _, ok := grpcstatus.FromError(err); ok {
		return err
	}
	code := codes.Internal
	failed, isCommand := errors.AsType[*commandError](err)
	switch {
	case errors.Is(err, errPending):
		code = codes.Aborted
	case errors.Is(err, errStuck):
		code = codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case isCommand && failed.code == exitUsage:
		code = codes.InvalidArgument
	}
	return grpcstatus.Error(code, err.Error())
}

// refuse returns an error with a code.
func refuse(code codes.Code, format string, args ...any) error {
	return grpcstatus.Errorf(code, format, args...)
}
