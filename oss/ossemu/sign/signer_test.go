package sign_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sort"
	"strings"
	"testing"
	"time"
)

// This file signs as S3 clients do, straightforwardly and apart from the package
// under test; the published vectors vouch for both.

const (
	s3ID     = "AKIA-test"
	s3Secret = "s3 secret/+="
	s3Region = "eu-x"
)

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// s3Signer signs requests and chunks with SigV4.
type s3Signer struct {
	now      time.Time
	token    string
	previous string
}

func (s *s3Signer) stamp() string { return s.now.UTC().Format("20060102T150405Z") }

func (s *s3Signer) scope() string {
	return s.now.UTC().Format("20060102") + "/" + s3Region + "/s3/aws4_request"
}

func (s *s3Signer) sum(text string) string {
	key := hmacOf([]byte("AWS4"+s3Secret), s.now.UTC().Format("20060102"))
	key = hmacOf(hmacOf(hmacOf(key, s3Region), "s3"), "aws4_request")
	return hex.EncodeToString(hmacOf(key, text))
}

// sign signs r in its header. Every header of r is signed.
func (s *s3Signer) sign(r *http.Request, payload string) {
	r.Header.Set("X-Amz-Date", s.stamp())
	r.Header.Set("X-Amz-Content-Sha256", payload)
	if s.token != "" {
		r.Header.Set("X-Amz-Security-Token", s.token)
	}
	names := []string{"host"}
	for name := range r.Header {
		names = append(names, strings.ToLower(name))
	}
	sort.Strings(names)
	lines := ""
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		lines += name + ":" + strings.Join(strings.Fields(value), " ") + "\n"
	}
	query := strings.Split(strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"), "&")
	sort.Strings(query)
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), strings.Join(query, "&"), lines, strings.Join(names, ";"), payload,
	}, "\n")
	s.previous = s.sum(strings.Join([]string{"AWS4-HMAC-SHA256", s.stamp(), s.scope(), sha([]byte(canonical))}, "\n"))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s3ID, s.scope(), strings.Join(names, ";"), s.previous))
}

// chunks frames the pieces of a body, signing them when signed. A last, empty
// chunk is added.
func (s *s3Signer) chunks(signed bool, pieces ...string) *bytes.Buffer {
	var b bytes.Buffer
	for _, piece := range append(pieces, "") {
		fmt.Fprintf(&b, "%x", len(piece))
		if signed {
			s.previous = s.sum(strings.Join([]string{
				"AWS4-HMAC-SHA256-PAYLOAD", s.stamp(), s.scope(), s.previous, emptySHA, sha([]byte(piece)),
			}, "\n"))
			b.WriteString(";chunk-signature=" + s.previous)
		}
		b.WriteString("\r\n")
		if piece != "" {
			b.WriteString(piece + "\r\n")
		}
	}
	return &b
}

// trailer appends trailer lines to a framed body, signing them when signed.
func (s *s3Signer) trailer(b *bytes.Buffer, signed bool, lines ...string) {
	text := ""
	for _, line := range lines {
		b.WriteString(line + "\r\n")
		text += line + "\n"
	}
	if signed {
		b.WriteString("x-amz-trailer-signature:" + s.sum(strings.Join([]string{
			"AWS4-HMAC-SHA256-TRAILER", s.stamp(), s.scope(), s.previous, sha([]byte(text)),
		}, "\n")) + "\r\n")
	}
	b.WriteString("\r\n")
}

// signV2 signs r with SigV2; resource is the canonical resource.
func signV2(r *http.Request, resource string) {
	names := []string{}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	date, amz := r.Header.Get("Date"), ""
	if r.Header.Get("X-Amz-Date") != "" {
		date = ""
	}
	for _, name := range names {
		amz += strings.ToLower(name) + ":" + r.Header.Get(name) + "\n"
	}
	r.Header.Set("Authorization", "AWS "+s3ID+":"+v2Sum(r, date, amz+resource))
}

func v2Sum(r *http.Request, date, rest string) string {
	h := hmac.New(sha1.New, []byte(s3Secret))
	h.Write([]byte(strings.Join([]string{r.Method, r.Header.Get("Content-Md5"), r.Header.Get("Content-Type"), date, rest}, "\n")))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// s3Request is what a server sees of a request to the path-style target.
func s3Request(t testing.TB, method, target, body string) *http.Request {
	t.Helper()
	if _, err := url.ParseRequestURI(target); err != nil {
		t.Fatalf("parse target: %v", err)
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:9000"
	return r
}

// v1Sum is an OSS V1 signature of a request without Content-MD5 and type.
func v1Sum(secret, method, date, rest string) string {
	h := hmac.New(sha1.New, []byte(secret))
	h.Write([]byte(strings.Join([]string{method, "", "", date, rest}, "\n")))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func unescapePath(t *testing.T, escaped string) string {
	t.Helper()
	path, err := url.PathUnescape(escaped)
	if err != nil {
		t.Fatalf("unescape path: %v", err)
	}
	return path
}
