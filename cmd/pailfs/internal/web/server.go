package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// NewRegistry returns the registry of a daemon, with what is known of every Go
// program and of this one.
func NewRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "pailfs_build_info",
		Help:        "Always 1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Server serves metrics and health while the daemon lives, and what debugPages has
// if that was asked for. Without an address it does nothing. With one that it cannot
// have it tries again now and then: an address that is taken is no reason not to mount.
type Server struct {
	at    string
	guard guard
	debug *debugPages // nil if not asked for
	log   *slog.Logger
	// again is how long to wait before the address is tried again.
	again time.Duration

	server *http.Server // nil before serve
	stop   chan struct{}
	done   sync.WaitGroup
	mu     struct {
		sync.Mutex
		listener net.Listener // nil while nothing is served
		failed   error        // why nothing is served
	}
}

// retryAfter is how long to wait before an address that was taken is tried again.
const retryAfter = 30 * time.Second

// mostConnections bounds what those who reach the server can make it hold.
const mostConnections = 64

// Listen takes the address that c names, if any. It fails only where the address
// is required.
func Listen(c *config.Config, log *slog.Logger) (*Server, error) {
	w := &Server{guard: newGuard(c), log: log, again: retryAfter, stop: make(chan struct{})}
	if c.HTTP == "" {
		return w, nil
	}
	w.at = c.ListenAddress()
	if c.HTTPDebug {
		w.debug = newDebugPages(c.HTTPDebugAllowRemote)
	}
	err := w.listen()
	switch {
	case err != nil && c.HTTPRequired:
		return nil, fmt.Errorf("%w: choose another port", err)
	case err != nil:
		log.Warn("metrics and health are not served; the mount goes on, and the address is tried again", "error", err, "every", w.again.String())
	}
	return w, nil
}

// listen takes the address.
func (w *Server) listen() error {
	l, err := net.Listen("tcp", w.at)
	if err != nil {
		err = fmt.Errorf("cannot listen at %s: %w", w.at, err)
	} else {
		l = netutil.LimitListener(l, mostConnections)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.listener, w.mu.failed = l, err
	return err
}

// Address returns where is served, "" for nowhere.
func (w *Server) Address() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.listener == nil {
		return ""
	}
	return w.mu.listener.Addr().String()
}

// Warning says that nothing is served although it should be, else "".
func (w *Server) Warning() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.failed == nil {
		return ""
	}
	return fmt.Sprintf("neither metrics nor health can be asked for: %s: choose another port; this one is tried again every %s", command.OneLine(w.mu.failed), w.again)
}

// Serve begins to answer: with the metrics, with what health says, and with the pages for the rest.
func (w *Server) Serve(metrics prometheus.Gatherer, health func() Health, pages http.Handler) {
	if w.at == "" {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { health().write(w) })
	mux.Handle("/", pages)
	if w.debug != nil {
		w.debug.register(mux)
	}
	w.server = &http.Server{
		Handler:           w.guard.wrap(mux),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// A profile is written at the end of the time that it takes.
		WriteTimeout:   mostProfile + 30*time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(w.log.Handler(), slog.LevelWarn),
	}
	w.done.Go(w.run)
}

// run serves until Close, and tries to have the address while it has not.
func (w *Server) run() {
	for {
		w.mu.Lock()
		l := w.mu.listener
		w.mu.Unlock()
		if l != nil {
			w.log.Info("serving metrics", "address", l.Addr().String())
			err := w.server.Serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				return
			}
			w.log.Error("metrics and health are no longer served", "error", err)
			w.mu.Lock()
			w.mu.listener, w.mu.failed = nil, err
			w.mu.Unlock()
		}
		select {
		case <-w.stop:
			return
		case <-time.After(w.again):
			_ = w.listen() // status says it
		}
	}
}

// closePatience is how long requests that run may take to end.
const closePatience = 2 * time.Second

// Close stops serving.
func (w *Server) Close() error {
	close(w.stop)
	var failed error
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		if err := w.server.Shutdown(ctx); err != nil {
			// A profile that is being taken may last; it is cut off.
			failed = w.server.Close()
		}
	}
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.listener != nil {
		// The server has closed the one that it served.
		if err := w.mu.listener.Close(); !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
