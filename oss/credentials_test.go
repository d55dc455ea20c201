package oss

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/internal/secrettest"
)

const (
	testID     = "LTAI5tTestTestTest"
	testSecret = "b4LTUdSecretSecretSecretSecret"
	testToken  = "CAISTokenTokenTokenTokenTokenToken"
)

// keyFile is the text of a connector's file.
func keyFile(id, token string) string {
	return fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q, "SecurityToken": %q}`, id, testSecret, token)
}

// writeKeys writes a connector's file.
func writeKeys(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	replaceKeys(t, path, text)
	return path
}

// replaceKeys replaces the file as a careful agent does: by rename.
func replaceKeys(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func openSource(t *testing.T, cfg credentials.Config) *credentials.Source {
	t.Helper()
	s, err := credentials.Open(cfg, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestRefusedRequestIsSignedWithNewerKeys replaces the file under a client.
func TestRefusedRequestIsSignedWithNewerKeys(t *testing.T) {
	for name, region := range map[string]string{"V1": "", "V4": "cn-hangzhou"} {
		t.Run(name, func(t *testing.T) {
			file := func(id string) string { return keyFile(id, "") }
			path := writeKeys(t, file("OLDOLD"))
			source := openSource(t, credentials.Config{File: path})
			var refused atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Header.Get("Authorization"), "OLDOLD") {
					refused.Add(1)
					refuse(w, 403, "InvalidAccessKeyId")
					return
				}
				if r.Method == http.MethodHead {
					w.Header().Set("ETag", `"AB"`)
					w.Header().Set("Content-Length", "7")
					w.Header().Set("Last-Modified", "Fri, 24 Feb 2012 06:07:48 GMT")
					return
				}
				serveRange(w, r)
			}))
			defer server.Close()
			c, err := Open(Config{Endpoint: server.URL, Bucket: "bucket", Region: region, Credentials: source}, nil, nil, quietLog())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			b := &bubble{T: t, client: c}
			if err := b.readSome(t.Context(), Demand); !errors.Is(err, ErrAccessDenied) {
				t.Fatalf("with old keys: %v", err)
			}
			replaceKeys(t, path, file("NEWNEW"))
			if err := b.readSome(t.Context(), Demand); err != nil {
				t.Fatalf("with new keys: %v", err)
			}
			if _, err := c.As(Demand).Head(t.Context(), "key"); err != nil {
				t.Fatalf("with new keys: %v", err)
			}
			// The source may have seen the change before the second request was signed.
			if n := refused.Load(); n < 1 || n > 2 {
				t.Errorf("%d requests were refused, want one before the change and at most one after it", n)
			}
		})
	}
}

// TestNoTokenIsSentAfterARenewal replaces the file under a client whose old keys the server
// refuses. Its requests say what is in the way.
func TestNoTokenIsSentAfterARenewal(t *testing.T) {
	path := writeKeys(t, keyFile("OLDOLD", ""))
	source := openSource(t, credentials.Config{File: path, RefuseTokens: true})
	var requests, tokens atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("X-Oss-Security-Token") != "" {
			tokens.Add(1)
		}
		refuse(w, 403, "InvalidAccessKeyId")
	}))
	defer server.Close()
	c, err := Open(Config{Endpoint: server.URL, Bucket: "bucket", Credentials: source}, nil, nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	replaceKeys(t, path, keyFile("NEWNEW", testToken))
	b := &bubble{T: t, client: c}
	err = b.readSome(t.Context(), Demand)
	if !errors.Is(err, ErrAccessDenied) || !strings.Contains(err.Error(), credentials.ErrTokenExposed.Error()) || strings.Contains(err.Error(), testToken) {
		t.Errorf("reading: %v", err)
	}
	if _, err := c.As(Demand).Head(t.Context(), "key"); !errors.Is(err, ErrAccessDenied) {
		t.Errorf("asking: %v", err)
	}
	if requests.Load() == 0 || tokens.Load() != 0 {
		t.Errorf("of %d requests %d carried the token", requests.Load(), tokens.Load())
	}
}

// TestNoSecretIsEverShown prints, logs and encodes what holds credentials.
func TestNoSecretIsEverShown(t *testing.T) {
	source := openSource(t, credentials.Config{Kind: credentials.Static, AccessKeyID: testID, AccessKeySecret: testSecret, SecurityToken: testToken})
	client, err := Open(Config{Endpoint: "http://127.0.0.1:1", Bucket: "bucket", Credentials: source}, nil, nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	secrettest.NotShown(t, []string{testSecret, testToken}, client, client.cfg, Config{Credentials: source}, sdkKeys{source.Keys()})
}

func TestServersEchoOfASecretIsRemoved(t *testing.T) {
	source := openSource(t, credentials.Config{Kind: credentials.Static, AccessKeyID: testID, AccessKeySecret: testSecret, SecurityToken: testToken})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>SignatureDoesNotMatch</Code><Message>You sent %s and\n%s.</Message><StringToSign>x-oss-security-token:%s</StringToSign></Error>", testToken, testSecret, testToken)
	}))
	defer server.Close()
	c, err := Open(Config{Endpoint: server.URL, Bucket: "bucket", Credentials: source}, nil, nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, checked := c.Preflight(t.Context(), "")
	for _, err := range []error{checked, (&bubble{T: t, client: c}).readSome(t.Context(), Demand)} {
		if err == nil || strings.Contains(err.Error(), testToken) || strings.Contains(err.Error(), testSecret) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error is %v", err)
		}
	}
}
