package oss_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestPreflightNamesWhatIsWrong(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{Region: "cn-hangzhou"})
	late := ossemutest.Start(t, ossemu.Config{Now: func() time.Time { return time.Now().Add(20 * time.Minute) }})
	tokens := ossemutest.Start(t, ossemu.Config{Credentials: []ossemu.Credential{
		{AccessKeyID: "STS.id", AccessKeySecret: "sts-secret", SecurityToken: "token", Expires: time.Now().Add(-time.Hour)},
	}})
	strict := ossemutest.Start(t, ossemu.Config{PathStyle: ossemu.PathStyleDeny})
	answering := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		return s.URL
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it hears what it should not
	secure.StartTLS()
	t.Cleanup(secure.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()

	for name, test := range map[string]struct {
		change func(cfg *oss.Config)
		want   []string
	}{
		"unknown host":     {func(c *oss.Config) { c.Endpoint = "oss-cn-nowhere.invalid" }, []string{"cannot be resolved", "test-bucket.oss-cn-nowhere.invalid"}},
		"closed port":      {func(c *oss.Config) { c.Endpoint = "http://" + closed.Addr().String() }, []string{"nothing listens", closed.Addr().String()}},
		"TLS against HTTP": {func(c *oss.Config) { c.Endpoint = strings.Replace(c.Endpoint, "http:", "https:", 1) }, []string{"http://"}},
		"HTTP against TLS": {func(c *oss.Config) { c.Endpoint = strings.Replace(secure.URL, "https:", "http:", 1) }, []string{"https://"}},
		"untrusted":        {func(c *oss.Config) { c.Endpoint = secure.URL }, []string{"certificate", "not trusted"}},
		"missing bucket":   {func(c *oss.Config) { c.Bucket = "no-such-bucket" }, []string{`"no-such-bucket" does not exist`}},
		"unknown key":      {func(c *oss.Config) { c.Credentials = staticCredentials(t, "unknown-key-id", "x", "") }, []string{"access key id", "unkn…y-id"}},
		"wrong secret, V1": {func(c *oss.Config) { c.Credentials = staticCredentials(t, e.AccessKeyID, "wrong-secret-1", "") }, []string{"secret"}},
		"wrong secret, V4": {func(c *oss.Config) {
			c.Region = "cn-hangzhou"
			c.Credentials = staticCredentials(t, e.AccessKeyID, "wrong-secret-1", "")
		}, []string{"secret", "region", "cn-hangzhou"}},
		"wrong region": {func(c *oss.Config) { c.Region = "cn-beijing" }, []string{"region", "cn-beijing"}},
		"expired token": {func(c *oss.Config) {
			c.Endpoint, c.Credentials = tokens.Endpoint, staticCredentials(t, "STS.id", "sts-secret", "token")
		}, []string{"session token", "expired"}},
		"skewed clock":       {func(c *oss.Config) { c.Endpoint = late.Endpoint }, []string{"clock"}},
		"anonymous":          {func(c *oss.Config) { c.Credentials = nil }, []string{"not public", "credentials"}},
		"path style refused": {func(c *oss.Config) { c.Endpoint = strict.Endpoint }, []string{"path style"}},
		"another service": {func(c *oss.Config) {
			c.Endpoint = answering(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") })
		}, []string{"does not answer like OSS"}},
		"a missing page": {func(c *oss.Config) { c.Endpoint = answering(http.NotFound) }, []string{"does not answer like OSS"}},
		"redirected": {func(c *oss.Config) {
			c.Endpoint = answering(http.RedirectHandler("https://elsewhere/", http.StatusMovedPermanently).ServeHTTP)
		}, []string{"https://elsewhere/"}},
		"another region's endpoint": {func(c *oss.Config) {
			c.Endpoint = answering(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>The bucket you are attempting to access must be addressed using the specified endpoint.</Message><Endpoint>oss-cn-shanghai.aliyuncs.com</Endpoint></Error>")
			})
		}, []string{"use oss-cn-shanghai.aliyuncs.com"}},
		"no right to list": {func(c *oss.Config) {
			c.Endpoint = answering(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>You have no right to access this object.</Message></Error>")
			})
		}, []string{"oss:ListObjects"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := emulatorConfig(t, e)
			test.change(&cfg)
			_, err := openClient(t, cfg).Preflight(t.Context(), "data/")
			if err == nil {
				t.Fatal("the check succeeded")
			}
			text := err.Error()
			for _, want := range append(test.want, "oss://"+cfg.Bucket+"/data/") {
				if !strings.Contains(text, want) {
					t.Errorf("error does not say %q: %s", want, text)
				}
			}
			if strings.Contains(text, "\n") || len(text) > 700 {
				t.Errorf("error is not one line: %s", text)
			}
			t.Log(text)
		})
	}
}

func TestPreflightAcceptsWhatWorks(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{Region: "cn-hangzhou", Credentials: []ossemu.Credential{
		{AccessKeyID: "id", AccessKeySecret: "secret"},
		{AccessKeyID: "STS.id", AccessKeySecret: "sts-secret", SecurityToken: "token", Expires: time.Now().Add(time.Hour)},
	}})
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := r.Clone(r.Context())
		req.RequestURI, req.URL.Scheme, req.URL.Host = "", "http", strings.TrimPrefix(e.Endpoint, "http://")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(cfg *oss.Config){
		"V1":  func(*oss.Config) {},
		"V4":  func(c *oss.Config) { c.Region = "cn-hangzhou" },
		"STS": func(c *oss.Config) { c.Credentials = staticCredentials(t, "STS.id", "sts-secret", "token") },
		"STS and V4": func(c *oss.Config) {
			c.Region, c.Credentials = "cn-hangzhou", staticCredentials(t, "STS.id", "sts-secret", "token")
		},
		"TLS": func(c *oss.Config) { c.Endpoint, c.CAFile = proxy.URL, authority },
		"TLS implied by a bare host": func(c *oss.Config) {
			c.Endpoint, c.CAFile = strings.TrimPrefix(proxy.URL, "https://"), authority
		},
		"HTTP proxy": func(c *oss.Config) { c.Endpoint, c.Proxy = "http://127.0.0.1:1", e.Endpoint },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := emulatorConfig(t, e)
			change(&cfg)
			if _, err := openClient(t, cfg).Preflight(t.Context(), "data/"); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n := e.Requests("ListObjectsV2"); n != e.Requests("") || n != 7 {
		t.Errorf("%d requests, %d of them listings; a check should be one listing", e.Requests(""), n)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // it is one
}

func TestPreflightHonoursItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := openClient(t, oss.Config{Endpoint: "http://127.0.0.1:1", Bucket: "bucket"})
	if _, err := c.Preflight(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Check of a cancelled context: %v", err)
	}
}

func TestPreflightTellsWhetherThereIsAnything(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	e.Put("data/file", []byte("x"))
	c := openClient(t, emulatorConfig(t, e))
	for prefix, want := range map[string]bool{"": true, "data/": true, "date/": false} {
		first, err := c.Preflight(t.Context(), prefix)
		if err != nil || (len(first) == 1 && first[0].Size == 1) != want {
			t.Errorf("prefix %q: %v, %v; want the object: %t", prefix, first, err, want)
		}
	}
}
