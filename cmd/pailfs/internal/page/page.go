package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

//go:embed files
var files embed.FS

// static are the parts of the page that are the same for everybody.
var static = []struct{ path, file, kind string }{
	{"/{$}", "files/index.html", "text/html; charset=utf-8"},
	{"/page.css", "files/page.css", "text/css; charset=utf-8"},
	{"/page.js", "files/page.js", "text/javascript; charset=utf-8"},
	{"/icon.svg", "files/icon.svg", "image/svg+xml"},
}

// headers keep the page to itself: it loads its own parts and nothing else, text cannot become
// markup or a script in it, nobody frames it, and no link tells where it came from.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy": "same-origin",
	"Permissions-Policy":         "camera=(), geolocation=(), microphone=()",
	"X-Frame-Options":            "DENY",
	"Cache-Control":              "no-store",
}

// mostAnswers bounds how many documents are made at once.
const mostAnswers = 4

// Page is the status page of one mount.
type Page struct {
	source  Source
	log     *slog.Logger
	mux     *http.ServeMux
	token   string
	history recorder
	answers chan struct{} // a place for each document that is being made
	// open is held for reading while the source is asked.
	open struct {
		sync.RWMutex
		closed bool
	}
}

var _ http.Handler = (*Page)(nil)

// New returns the page of a daemon, with a token of its own.
func New(source Source, log *slog.Logger) (*Page, error) {
	p := &Page{source: source, log: log, mux: http.NewServeMux(), token: rand.Text(), answers: make(chan struct{}, mostAnswers)}
	for _, s := range static {
		content, err := files.ReadFile(s.file)
		if err != nil {
			return nil, err
		}
		p.mux.HandleFunc("GET "+s.path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", s.kind)
			_, _ = w.Write(content) // the client has gone
		})
	}
	p.mux.HandleFunc("GET /page.json", p.serveDocument)
	return p, nil
}

// URL returns the page's address, with the token if the page is served at address to this machine:
// over any other network it would not stay a secret.
func (p *Page) URL(address string) (url string, names bool) {
	url = "http://" + address + "/"
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return url, false
	case at.Addr().IsUnspecified() && at.Addr().Is4():
		url = "http://" + netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String() + "/"
	case at.Addr().IsUnspecified():
		url = "http://" + netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()).String() + "/"
	case !at.Addr().IsLoopback():
		return url, false
	}
	return url + "#token=" + p.token, true
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	p.mux.ServeHTTP(w, r)
}

// errWrongToken and errFar are why names are not told to who has a token.
var (
	errWrongToken = errors.New("this address is of a daemon that has ended: pailfs status --page MOUNTPOINT prints the one of today")
	errFar        = errors.New("names are told at the loopback address alone: nothing here is encrypted")
)

// mayKnowNames reports whether r may be told names. A request without a token asks for none.
func (p *Page) mayKnowNames(r *http.Request) (bool, error) {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return false, nil
	}
	token, bearer := strings.CutPrefix(authorization, "Bearer ")
	if !bearer || subtle.ConstantTimeCompare([]byte(token), []byte(p.token)) != 1 {
		return false, errWrongToken
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false, errFar
	}
	if peer, err := netip.ParseAddr(host); err != nil || !peer.Unmap().IsLoopback() {
		return false, errFar
	}
	return true, nil
}

// serveDocument answers page.json. A client that does not read it holds up nobody else, nor the end of
// the mount.
func (p *Page) serveDocument(w http.ResponseWriter, r *http.Request) {
	names, err := p.mayKnowNames(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	text, err := p.encoded(names)
	switch {
	case errors.Is(err, errMany):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, errEnded):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		p.log.Error("the status page cannot be answered", "error", err)
		http.Error(w, "the daemon cannot say how it is: its log says why", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client has gone
	}
}

// errMany and errEnded are why no document is made.
var (
	errMany  = errors.New("others are being answered: ask again")
	errEnded = errors.New("the mount has ended")
)

// encoded returns page.json.
func (p *Page) encoded(names bool) ([]byte, error) {
	select {
	case p.answers <- struct{}{}:
		defer func() { <-p.answers }()
	default:
		return nil, errMany
	}
	p.open.RLock()
	defer p.open.RUnlock()
	if p.open.closed {
		return nil, errEnded
	}
	d, err := p.document(names)
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// Run records the history until ctx ends.
func (p *Page) Run(ctx context.Context) {
	tick := time.NewTicker(SampleEvery)
	defer tick.Stop()
	for {
		p.sample(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sample records one moment.
func (p *Page) sample(now time.Time) {
	p.open.RLock()
	defer p.open.RUnlock()
	if p.open.closed {
		return
	}
	answer, err := p.source.Report(false)
	if err != nil {
		p.log.Warn("the history of the status page lacks a moment", "error", err)
		return
	}
	p.history.record(&answer.Status, now)
}

// Close lets the last request that asks the source end, and answers no further one.
func (p *Page) Close() error {
	p.open.Lock()
	defer p.open.Unlock()
	p.open.closed = true
	return nil
}
