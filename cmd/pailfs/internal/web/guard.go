package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
)

// guard lets only requests through that no page of another site made a browser
// send. Such a page can neither choose what the browser says of where a request
// comes from, nor have its own name taken for ours by letting it resolve to our
// address (DNS rebinding): a name counts only if it is known.
type guard struct {
	// remote: the address can be reached from other machines.
	remote bool
	// names are those under which they may ask.
	names []string
}

// newGuard returns the guard for the address in c.
func newGuard(c *config.Config) guard {
	g := guard{remote: c.HTTPAllowRemote}
	if !g.remote {
		return g
	}
	g.names = c.WebHosts()
	if host, _, err := net.SplitHostPort(c.ListenAddress()); err == nil && host != "" {
		g.names = append(g.names, hostOf(host))
	}
	if own, err := os.Hostname(); err == nil {
		g.names = append(g.names, hostOf(own))
	}
	return g
}

// wrap returns next behind the guard.
func (g guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := g.refuses(r); reason != "" {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		// What is answered is what it says it is, for our own pages alone, and links tell nobody of it.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// refuses says why r is not answered, or "".
func (g guard) refuses(r *http.Request) string {
	switch {
	case !g.known(r.Host) && g.remote:
		return "this server is asked by its address, by the name of its machine or by one in http-hosts"
	case !g.known(r.Host):
		return "this server answers to the loopback address only"
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		// none is a person who typed the address.
		if site != "same-origin" && site != "none" {
			return "this server answers no page of another site"
		}
	}
	for _, header := range []string{"Origin", "Referer"} {
		for _, text := range r.Header.Values(header) {
			if from, err := url.Parse(text); err != nil || !strings.EqualFold(from.Host, r.Host) {
				return "this server answers no page of another site"
			}
		}
	}
	return ""
}

// known reports whether host, with or without a port, is ours.
func (g guard) known(host string) bool {
	name := hostOf(host)
	if address, err := netip.ParseAddr(name); err == nil {
		return g.remote || address.IsLoopback()
	}
	return name == "localhost" || slices.Contains(g.names, name)
}

// hostOf returns a host without its port, in the one spelling that is compared.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
