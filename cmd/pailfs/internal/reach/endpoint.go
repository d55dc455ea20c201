package reach

import (
	"net/url"
	"strings"
)

// CanonicalEndpoint returns one spelling for all that mean the same service, for
// what must not depend on it: the same objects are found in the cache however the
// endpoint is written. The scheme does not take part.
func CanonicalEndpoint(endpoint string) string {
	text := strings.TrimSpace(endpoint)
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return endpoint
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	switch {
	case port == "", port == "80" && u.Scheme == "http", port == "443" && u.Scheme == "https":
		return host
	}
	return host + ":" + port
}
