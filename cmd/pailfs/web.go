package main

import (
	"context"
	"encoding/json"
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
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

// newRegistry returns the registry of a daemon, with what is known of every Go
// program and of this one.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "pailfs_build_info",
		Help:        "Always 1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": versionText()},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// webServer serves metrics and health while the daemon lives, and what debugPages has
// if that was asked for. Without an address it does nothing. With one that it cannot
// have it tries again now and then: an address that is taken is no reason not to mount.
type webServer struct {
	at    string
	guard webGuard
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

// webRetry is how long to wait before an address that was taken is tried again.
const webRetry = 30 * time.Second

// mostWebConnections bounds what those who reach the server can make it hold.
const mostWebConnections = 64

// listenWeb takes the address that c names, if any. It fails only where the address
// is required.
func listenWeb(c *config.Config, log *slog.Logger) (*webServer, error) {
	w := &webServer{guard: newWebGuard(c), log: log, again: webRetry, stop: make(chan struct{})}
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
func (w *webServer) listen() error {
	l, err := net.Listen("tcp", w.at)
	if err != nil {
		err = fmt.Errorf("cannot listen at %s: %w", w.at, err)
	} else {
		l = netutil.LimitListener(l, mostWebConnections)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.listener, w.mu.failed = l, err
	return err
}

// address returns where is served, "" for nowhere.
func (w *webServer) address() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.listener == nil {
		return ""
	}
	return w.mu.listener.Addr().String()
}

// warning says that nothing is served although it should be, else "".
func (w *webServer) warning() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.failed == nil {
		return ""
	}
	return fmt.Sprintf("neither metrics nor health can be asked for: %s: choose another port; this one is tried again every %s", command.OneLine(w.mu.failed), w.again)
}

// serve begins to answer.
func (w *webServer) serve(d *daemon) {
	if w.at == "" {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", d.serveHealth)
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

// run serves until close, and tries to have the address while it has not.
func (w *webServer) run() {
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

// close stops serving.
func (w *webServer) close() error {
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

// health is the answer of /healthz.
type health struct {
	// Status is "ok" or "failing".
	Status string `json:"status"`
	// Mount is "alive", "dead", "stuck" or an error.
	Mount string `json:"mount"`
	// Credentials is "ok" or why they could not be renewed.
	Credentials string `json:"credentials"`
	// Access is "ok" or since when and why the object store refuses access.
	Access string `json:"access"`
}

// serveHealth asks the mount through the kernel. A store that is down or refuses us
// does not make the mount unhealthy: what is cached can be read, and starting the
// daemon again would help nothing.
func (d *daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := health{Status: "ok", Mount: "alive", Credentials: "ok", Access: "ok"}
	if err := d.credentials.Status().Err; err != nil {
		h.Credentials = err.Error()
	}
	if access := d.client.Access(); access.Refused {
		h.Access = "refused since " + access.Since.UTC().Format(time.RFC3339) + ": " + access.Reason
	}
	switch state, err := d.liveness.Probe(probePatience); {
	case err != nil:
		h.Status, h.Mount = "failing", err.Error()
	case state == mountpoint.Dead:
		h.Status, h.Mount = "failing", "dead"
	case state == mountpoint.Stuck:
		h.Status, h.Mount = "failing", "stuck"
	}
	w.Header().Set("Content-Type", "application/json")
	if h.Status != "ok" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h) // the client has gone
}
