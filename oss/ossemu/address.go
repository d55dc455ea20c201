package ossemu

import (
	"net"
	"net/http"
	"strings"
)

// resolve says which bucket and key a request addresses, decoded. An empty
// bucket is the service itself, an empty key the bucket.
//
// The host decides: an address or a service domain means that the bucket is in
// the path, BUCKET.DOMAIN that it is in the host, a known cname stands for its
// bucket. Paths are never cleaned: "//", "./" and a trailing slash are parts of
// keys. net/http has unescaped the path once already, and its host is that of an
// absolute request target, if there is one, as a client behind a proxy sends it.
func (s *Server) resolve(r *http.Request) (bucket, key string, refusal *failure) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	host := hostOnly(r.Host)
	if host == "" || isAddress(host) || s.domains[host] {
		bucket, key, _ = strings.Cut(path, "/")
		if bucket != "" && s.cfg.PathStyle == PathStyleDeny {
			return "", "", errSecondLevelDomain
		}
		return bucket, key, nil
	}
	if label, domain, ok := strings.Cut(host, "."); ok && s.domains[domain] {
		return label, path, nil
	}
	if bucket, ok := s.cnames[host]; ok {
		return bucket, path, nil
	}
	return "", "", errNoSuchBucket.with("BucketName", host)
}

// hostOnly strips the port and folds case.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// isAddress reports whether host is an IP address. Most hosts of requests are;
// the first byte rules the others out without parsing.
func isAddress(host string) bool {
	c := host[0]
	if (c < '0' || c > '9') && strings.IndexByte(host, ':') < 0 {
		return false
	}
	return net.ParseIP(host) != nil
}

// serviceDomains are the host names whose requests name the bucket in the path.
func serviceDomains(configured []string) map[string]bool {
	domains := map[string]bool{"localhost": true}
	for _, d := range configured {
		domains[strings.ToLower(d)] = true
	}
	return domains
}
