package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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

// webServer serves metrics, health and profiles while the daemon lives. Without
// an address it does nothing.
type webServer struct {
	listener net.Listener
	remote   bool
	server   *http.Server
	log      *slog.Logger
	done     sync.WaitGroup
}

// listenWeb takes the address that c names, if any.
func listenWeb(c *config.Config, log *slog.Logger) (*webServer, error) {
	w := &webServer{remote: c.HTTPAllowRemote, log: log}
	if c.HTTP == "" {
		return w, nil
	}
	l, err := net.Listen("tcp", c.ListenAddress())
	if err != nil {
		return nil, fmt.Errorf("cannot listen at %s: %w: choose another port", c.ListenAddress(), err)
	}
	w.listener = l
	return w, nil
}

// address returns where is served, "" for nowhere.
func (w *webServer) address() string {
	if w.listener == nil {
		return ""
	}
	return w.listener.Addr().String()
}

// serve begins to answer.
func (w *webServer) serve(d *daemon) {
	if w.listener == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", d.serveHealth)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	w.server = &http.Server{
		Handler:           w.guard(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(w.log.Handler(), slog.LevelWarn),
	}
	w.log.Info("serving metrics", "address", w.address())
	w.done.Go(func() {
		if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics are no longer served", "error", err)
		}
	})
}

// guard lets only requests through that name the loopback address, so that a web
// page in a browser of this machine cannot reach the server by a name that it
// controls.
func (w *webServer) guard(next http.Handler) http.Handler {
	if w.remote {
		return next
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if address, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !address.IsLoopback()) {
			http.Error(rw, "this server answers to the loopback address only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// closePatience is how long requests that run may take to end.
const closePatience = 2 * time.Second

// close stops serving.
func (w *webServer) close() error {
	switch {
	case w.listener == nil:
		return nil
	case w.server == nil:
		return w.listener.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		// A profile that is being taken may last; it is cut off.
		if err := w.server.Close(); err != nil {
			return err
		}
	}
	w.done.Wait()
	return nil
}

// health is the answer of /healthz.
type health struct {
	// Status is "ok" or "failing".
	Status string `json:"status"`
	// Mount is "alive", "dead", "stuck" or an error.
	Mount string `json:"mount"`
	// Credentials is "ok" or why they could not be renewed.
	Credentials string `json:"credentials"`
}

// serveHealth asks the mount through the kernel. A store that is down does not
// make the mount unhealthy: what is cached can be read, and starting the daemon
// again would help nothing.
func (d *daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := health{Status: "ok", Mount: "alive", Credentials: "ok"}
	if err := d.credentials.Status().Err; err != nil {
		h.Credentials = err.Error()
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
