package ossemu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

const (
	// headerTimeout bounds how long a client may take over its headers.
	headerTimeout = 30 * time.Second
	// idleTimeout is how long a connection may rest between requests. That of the
	// real service is not known.
	idleTimeout = 3 * time.Minute
)

// listening is the HTTP server beneath Serve.
type listening struct {
	http *http.Server
	// ctx is the parent of every request. Its end wakes what waits for a latency
	// or a fault.
	ctx  context.Context //nolint:containedctx // the life of the server, as http.Server.BaseContext wants it
	stop context.CancelFunc
}

func (l *listening) init(s *Server) {
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.http = s.newHTTPServer()
}

// firstKey is the context key of what tells the first request of a connection.
type firstKey struct{}

func firstOfConnection(ctx context.Context) bool {
	served, ok := ctx.Value(firstKey{}).(*atomic.Bool)
	return ok && !served.Swap(true)
}

// Serve answers requests on l until Close or Shutdown. It returns nil after
// either.
//
// The connections are not wrapped: net/http sees *net.TCPConn, so bodies go out
// by sendfile.
func (s *Server) Serve(l net.Listener) error {
	if err := avoidBBR(l); err != nil {
		s.log.Debug("choose congestion control", "error", err)
	}
	err := s.listening.http.Serve(&acceptor{Listener: l, s: s})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// avoidBBR gives the listener's connections a congestion control that forgets.
// BBR, which some machines have as their default, takes a reader that pauses for
// a slow path and keeps its bodies at kilobytes per second for minutes. Here the
// shape decides how slow the path is.
func avoidBBR(l net.Listener) error {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil
	}
	conn, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = conn.Control(func(fd uintptr) {
		for _, name := range []string{"cubic", "reno"} {
			if set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); set == nil {
				return
			}
		}
	})
	return errors.Join(err, set)
}

func (s *Server) newHTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           s,
		Protocols:         &protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.listening.ctx },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, firstKey{}, new(atomic.Bool))
		},
	}
}

// acceptor holds new connections back while a fault says so.
type acceptor struct {
	net.Listener
	s *Server
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if d := a.s.faults.slowAccept(); d > 0 {
		// Whoever comes next waits as well, as behind a server that is slow to accept.
		_ = shape.Sleep(a.s.listening.ctx, time.Now().Add(d)) // an end of the server ends the wait
	}
	return conn, nil
}

// Shutdown stops accepting and waits for the requests in flight until ctx ends,
// then closes the server.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.listening.http.Shutdown(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // what was left is closed now
	}
	return errors.Join(err, s.Close())
}

// Close ends every request at once, then closes the directory.
func (s *Server) Close() error {
	s.listening.stop()
	err := s.listening.http.Close()
	// http.Server.Close does not wait for handlers, and the store must outlive them.
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed {
		return nil
	}
	s.life.closed = true
	return errors.Join(err, s.store.Close())
}
