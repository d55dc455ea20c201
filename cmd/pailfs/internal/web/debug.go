package web

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"time"
)

// mostProfile bounds how long a profile or a trace is taken: both slow the daemon
// down, and a trace of the scheduler grows by megabytes a second.
const mostProfile = 60 * time.Second

// mostDebugRequests bounds how many are answered at once.
const mostDebugRequests = 4

// debugPages are profiles and traces of the daemon, for whoever looks for what it
// does. They stop the world, and tell of the daemon's memory: they are served only
// if that was asked for, and to this machine unless said otherwise.
type debugPages struct {
	remote  bool
	running chan struct{}
}

func newDebugPages(remote bool) *debugPages {
	return &debugPages{remote: remote, running: make(chan struct{}, mostDebugRequests)}
}

// register adds the pages to mux.
func (p *debugPages) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", p.bounded(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", p.bounded(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", p.bounded(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", p.bounded(pprof.Trace))
	mux.HandleFunc("GET /debug/pprof/symbol", p.bounded(pprof.Symbol))
	mux.HandleFunc("POST /debug/pprof/symbol", p.bounded(pprof.Symbol))
}

// mostSymbols bounds what symbol is asked in one request.
const mostSymbols = 1 << 20

// bounded returns next for those who may ask, within bounds.
func (p *debugPages) bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if !p.remote && (err != nil || !peer.Addr().Unmap().IsLoopback()) {
			http.Error(w, "profiles are for this machine only: ask at the loopback address, or set http-debug-allow-remote", http.StatusForbidden)
			return
		}
		for _, text := range r.URL.Query()["seconds"] {
			// What is no number, NaN among it, is refused as well.
			if s, err := strconv.ParseFloat(text, 64); err != nil || !(s >= 0 && s <= mostProfile.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds is a number up to %.0f", mostProfile.Seconds()), http.StatusBadRequest)
				return
			}
		}
		select {
		case p.running <- struct{}{}:
			defer func() { <-p.running }()
		default:
			http.Error(w, fmt.Sprintf("%d profiles are being taken: wait for one", mostDebugRequests), http.StatusServiceUnavailable)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostSymbols)
		next(w, r)
	}
}
