package credentials

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
)

// ErrTokenExposed means that keys carry the token of a session, and that it would be sent
// over plain HTTP. Whoever reads it on the way has what the keys' owner thought would end
// by itself.
var ErrTokenExposed = errors.New("the token of a session would be sent over plain HTTP, for everybody on the way to read")

// Exposed reports whether requests to an endpoint, as in [Config], leave this machine
// without TLS.
func Exposed(endpoint string) bool {
	u, err := url.Parse(strings.TrimSpace(endpoint))
	return err == nil && u.Scheme == "http" && !loopback(u.Hostname())
}

// loopback reports whether host is this machine, without asking a resolver.
func loopback(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().IsLoopback()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".") == "localhost"
}
