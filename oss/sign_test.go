package oss

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/oss/credentials"
)

// recorder answers every request and keeps the last one.
type recorder struct{ last *http.Request }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.last = req
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestReadSignerSendsWhatTheSDKSends compares the fast path with the SDK,
// request for request, over addressing styles, signatures and keys.
func TestReadSignerSendsWhatTheSDKSends(t *testing.T) {
	for name, cfg := range map[string]Config{
		"path style": {Endpoint: "http://127.0.0.1:9000"},
		"IPv6":       {Endpoint: "http://[::1]:9000"},
		"forced":     {Endpoint: "https://oss.example.com", PathStyle: true},
		"vhost":      {Endpoint: "oss-cn-hangzhou.aliyuncs.com"},
		"vhost port": {Endpoint: "oss-cn-hangzhou.aliyuncs.com:8443"},
		"cname":      {Endpoint: "https://data.example.com", CNAME: true},
	} {
		for _, region := range []string{"", "cn-hangzhou"} {
			for _, token := range []string{"", "CAIS+token/with=chars"} {
				t.Run(strings.Join([]string{name, region, token}, "/"), func(t *testing.T) {
					cfg.Bucket, cfg.Region = "bucket-1", region
					source, err := credentials.Open(credentials.Config{AccessKeyID: "LTAIabc", AccessKeySecret: "s3cr3t", SecurityToken: token}, quietLog())
					if err != nil {
						t.Fatal(err)
					}
					cfg.Credentials = source
					compareSignatures(t, cfg)
				})
			}
		}
	}
}

func compareSignatures(t *testing.T, cfg Config) {
	c, err := Open(cfg, nil, nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rec := &recorder{}
	if c.conn, err = newConn(&c.cfg, c.endpoint, rec); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringN(1, 60, 300).Filter(func(s string) bool { return s != "" && s[0] != '/' }).Draw(rt, "key")
		synctest.Test(t, func(*testing.T) {
			k := cfg.Credentials.Keys()
			span := "bytes=7-99"
			compareRequests(rt, c, rec, c.reads.get(key, "ABC-1", span, k), key, map[string]string{
				"Range": span, "X-Oss-Range-Behavior": "standard", "If-Match": `"ABC-1"`,
			})
			compareRequests(rt, c, rec, c.reads.head(key, k), key, map[string]string{})
		})
	})
}

// compareRequests compares ours with what the SDK makes of the same.
func compareRequests(rt *rapid.T, c *Client, rec *recorder, ours *http.Request, key string, header map[string]string) {
	if _, err := c.conn.DoWithContext(context.Background(), ours.Method, c.cfg.Bucket, key, map[string]any{}, header, nil, 0, nil); err != nil {
		rt.Fatal(err)
	}
	sdk := rec.last
	if sdk.URL.RequestURI() != ours.URL.RequestURI() || sdk.URL.Host != ours.URL.Host || sdk.URL.Scheme != ours.URL.Scheme {
		rt.Fatalf("URL is %v, the SDK's is %v", ours.URL, sdk.URL)
	}
	if sdk.Method != ours.Method || sdk.Host != ours.Host {
		rt.Fatalf("%s %s, the SDK has %s %s", ours.Method, ours.Host, sdk.Method, sdk.Host)
	}
	// net/http leaves these two to the request's own fields.
	sdk.Header.Del("Host")
	sdk.Header.Del("Content-Length")
	if diff := cmp.Diff(sdk.Header, ours.Header); diff != "" {
		rt.Fatalf("%s of %q: header differs (-sdk +ours):\n%s", ours.Method, key, diff)
	}
}
