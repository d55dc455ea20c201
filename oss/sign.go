package oss

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the V1 signature is HMAC-SHA1 by definition
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/oss/credentials"
)

// readSigner makes the signed ranged GETs and HEADs, which are nearly all requests. The
// SDK signs every other kind. Its general path costs about as much as the rest of
// a small GET together (see DESIGN.md); this one knows what is signed and keeps
// what does not change: the date's text, and the V4 key of the day. The result is
// byte for byte what the SDK sends.
type readSigner struct {
	scheme, host string
	// path is what stands before the escaped key in the URL, resource what stands
	// before the key in the signed text.
	path, resource string
	// region selects V4 if it is not empty.
	region string

	now   atomic.Pointer[signTime]
	dayV4 atomic.Pointer[signDay]
}

// signTime is the text of one second.
type signTime struct {
	second    int64
	date, day string
}

// signDay is the V4 key of one day and one set of keys.
type signDay struct {
	keys *credentials.Keys
	day  string
	key  []byte
}

func newReadSigner(endpoint *url.URL, cfg *Config) *readSigner {
	s := &readSigner{
		scheme:   endpoint.Scheme,
		host:     endpoint.Host,
		path:     "/",
		resource: "/" + cfg.Bucket + "/",
		region:   cfg.Region,
	}
	switch {
	case cfg.pathStyle(endpoint):
		s.path = s.resource
	case !cfg.CNAME:
		s.host = cfg.Bucket + "." + endpoint.Host
	}
	return s
}

// escapeKey percent-encodes all but the unreserved characters, the slash too.
func escapeKey(key string) string {
	return strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
}

func (s *readSigner) time() *signTime {
	now := time.Now()
	if t := s.now.Load(); t != nil && t.second == now.Unix() {
		return t
	}
	utc := now.UTC()
	t := &signTime{second: now.Unix(), date: utc.Format(http.TimeFormat), day: utc.Format("20060102")}
	s.now.Store(t)
	return t
}

// get returns the signed GET of the bytes that span names, if key still holds
// etag. k is nil for an anonymous one.
func (s *readSigner) get(key, etag, span string, k *credentials.Keys) *http.Request {
	req := s.request(http.MethodGet, "x-oss-range-behavior:standard\n", key, k)
	req.Header["Range"] = []string{span}
	req.Header["X-Oss-Range-Behavior"] = standardRange
	req.Header["If-Match"] = []string{`"` + etag + `"`}
	return req
}

// head returns the signed HEAD of key.
func (s *readSigner) head(key string, k *credentials.Keys) *http.Request {
	return s.request(http.MethodHead, "", key, k)
}

// request returns a request for key with the signature of method. ranged is the line of
// the signed text for a header that the caller adds.
func (s *readSigner) request(method, ranged, key string, k *credentials.Keys) *http.Request {
	escaped := escapeKey(key)
	now := s.time()
	h := make(http.Header, 8)
	h["Date"] = []string{now.date}
	h["User-Agent"] = userAgentHeader
	if k != nil {
		if !k.Token.Empty() {
			h["X-Oss-Security-Token"] = []string{k.Token.Reveal()}
		}
		if s.region == "" {
			h["Authorization"] = []string{s.v1(method, ranged, key, now, k)}
		} else {
			h["X-Oss-Content-Sha256"] = unsignedPayload
			h["Authorization"] = []string{s.v4(method, ranged, escaped, now, k)}
		}
	}
	return &http.Request{
		Method:     method,
		URL:        &url.URL{Scheme: s.scheme, Host: s.host, Path: s.path + key, RawPath: s.path + escaped},
		Host:       s.host,
		Header:     h,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
}

const userAgent = "pailfs"

// Values of headers that never change, shared by all requests.
var (
	userAgentHeader = []string{userAgent}
	standardRange   = []string{"standard"}
	unsignedPayload = []string{"UNSIGNED-PAYLOAD"}
)

func (s *readSigner) v1(method, ranged, key string, now *signTime, k *credentials.Keys) string {
	mac := hmac.New(sha1.New, []byte(k.Secret.Reveal()))
	text := make([]byte, 0, 256)
	text = append(text, method...)
	text = append(text, "\n\n\n"...)
	text = append(text, now.date...)
	text = append(text, '\n')
	text = append(text, ranged...)
	text = appendToken(text, k)
	text = append(text, s.resource...)
	text = append(text, key...)
	mac.Write(text)
	return "OSS " + k.ID + ":" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (s *readSigner) v4(method, ranged, escaped string, now *signTime, k *credentials.Keys) string {
	scope := now.day + "/" + s.region + "/oss/aliyun_v4_request"
	text := make([]byte, 0, 512)
	text = append(text, method...)
	text = append(text, '\n')
	text = append(text, s.resource...)
	text = append(text, strings.ReplaceAll(escaped, "%2F", "/")...)
	text = append(text, "\n\nx-oss-content-sha256:UNSIGNED-PAYLOAD\n"...)
	text = append(text, ranged...)
	text = appendToken(text, k)
	text = append(text, "\n\nUNSIGNED-PAYLOAD"...)
	canonical := sha256.Sum256(text)

	mac := hmac.New(sha256.New, s.keyOfDay(now.day, k))
	text = append(text[:0], "OSS4-HMAC-SHA256\n"...)
	text = append(text, now.date...)
	text = append(text, '\n')
	text = append(text, scope...)
	text = append(text, '\n')
	text = hex.AppendEncode(text, canonical[:])
	mac.Write(text)
	return "OSS4-HMAC-SHA256 Credential=" + k.ID + "/" + scope + ",Signature=" + hex.EncodeToString(mac.Sum(nil))
}

func appendToken(text []byte, k *credentials.Keys) []byte {
	if k.Token.Empty() {
		return text
	}
	text = append(text, "x-oss-security-token:"...)
	text = append(text, k.Token.Reveal()...)
	return append(text, '\n')
}

// keyOfDay derives the V4 key, four HMACs of which the result is good all day.
func (s *readSigner) keyOfDay(day string, k *credentials.Keys) []byte {
	if d := s.dayV4.Load(); d != nil && d.keys == k && d.day == day {
		return d.key
	}
	key := []byte("aliyun_v4" + k.Secret.Reveal())
	for _, part := range []string{day, s.region, "oss", "aliyun_v4_request"} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	s.dayV4.Store(&signDay{keys: k, day: day, key: key})
	return key
}
