package bare

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the V1 signature is HMAC-SHA1
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// signature is the V1 signature of a request: HMAC-SHA1 over the method, three
// headers, the x-oss- headers in order, and the resource.
func signature(secret, method string, header http.Header, resource string) string {
	var s strings.Builder
	for _, line := range []string{method, header.Get("Content-Md5"), header.Get("Content-Type"), header.Get("Date")} {
		s.WriteString(line)
		s.WriteByte('\n')
	}
	var names []string
	for name := range header {
		if strings.HasPrefix(strings.ToLower(name), "x-oss-") {
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		s.WriteString(name + ":" + strings.TrimSpace(header.Get(name)) + "\n")
	}
	s.WriteString(resource)
	mac := hmac.New(sha1.New, []byte(secret))
	_, _ = mac.Write([]byte(s.String())) // a hash.Hash never fails
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// resource is the signed name of what is asked for: bucket, key and those
// parameters that the signature covers.
func resource(bucket, key, query string) string {
	s := "/" + bucket + "/" + key
	var covered []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, hasValue := strings.Cut(part, "=")
		switch name {
		case "continuation-token", "delete", "partNumber", "uploadId", "uploads":
		default:
			continue
		}
		if hasValue && value != "" {
			if plain, err := url.QueryUnescape(value); err == nil {
				value = plain
			}
			name += "=" + value
		}
		covered = append(covered, name)
	}
	if len(covered) > 0 {
		slices.Sort(covered)
		s += "?" + strings.Join(covered, "&")
	}
	return s
}
