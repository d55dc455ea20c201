package oss

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhichEndpointsAreExposed(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"https://oss.example":      false,
		"oss.example":              false,
		"http://oss.example":       true,
		" HTTP://oss.example":      true,
		"http://10.0.0.1:9000":     true,
		"http://127.0.0.1:9000":    false,
		"http://[::1]:9000":        false,
		"http://[::ffff:7f00:1]:9": false,
		"http://localhost:9000":    false,
		"http://Localhost.:9000":   false,
		"http://localhost.example": true,
	} {
		if got := Exposed(endpoint); got != want {
			t.Errorf("%q is exposed: %v, want %v", endpoint, got, want)
		}
	}
}

func TestATokenIsRefusedAtTheStart(t *testing.T) {
	noCredentials(t)
	t.Setenv(envAccessKeyID, testID)
	t.Setenv(envAccessKeySecret, testSecret)
	t.Setenv(envSessionToken, testToken)
	path := writeCredentials(t, 0o600, keyFile(testID, testToken))
	for _, cfg := range []CredentialsConfig{
		{},
		{Kind: CredentialsEnvironment},
		{File: path},
		{Kind: CredentialsStatic, AccessKeyID: testID, AccessKeySecret: testSecret, SecurityToken: testToken},
	} {
		cfg.RefuseTokens = true
		if _, err := OpenCredentials(cfg, quietLog()); !errors.Is(err, ErrTokenExposed) || strings.Contains(err.Error(), testToken) {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}

// TestATokenIsRefusedAfterARenewal gives keys with a token to a source that began with keys
// that have none, for each way in which a renewal begins.
func TestATokenIsRefusedAfterARenewal(t *testing.T) {
	for name, renew := range map[string]func(*testing.T, *CredentialSource, *fakeProvider){
		"its time has come": func(*testing.T, *CredentialSource, *fakeProvider) { time.Sleep(time.Hour) },
		"the place changed": func(_ *testing.T, _ *CredentialSource, p *fakeProvider) {
			p.dirty.Store(true)
			time.Sleep(changeInterval + time.Second)
		},
		"a request was refused": func(t *testing.T, s *CredentialSource, _ *fakeProvider) {
			s.refreshed(t.Context(), s.get())
			synctest.Wait()
		},
		"a request was refused after a change": func(t *testing.T, s *CredentialSource, p *fakeProvider) {
			p.dirty.Store(true)
			if s.refreshed(t.Context(), s.get()) {
				t.Error("the refused keys count as newer")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				p := &fakeProvider{life: time.Hour}
				p.plain.Store(true)
				s, err := openSourceOf(CredentialsFile, p, true, slog.New(slog.NewTextHandler(&logged, nil)))
				if err != nil {
					t.Fatal(err)
				}
				p.plain.Store(false)
				renew(t, s, p)
				if n := p.reads.Load(); n < 2 {
					t.Fatalf("the keys were read %d times", n)
				}
				if k := s.get(); k.id != "id-1" || !k.token.empty() {
					t.Errorf("keys %s with a token are in force", k.id)
				}
				if err := s.Status().Err; !errors.Is(err, ErrTokenExposed) {
					t.Errorf("status says %v", err)
				}
				p.plain.Store(true)
				time.Sleep(time.Hour)
				if k := s.get(); k.id == "id-1" || s.Status().Err != nil {
					t.Errorf("keys without a token are not taken: %s, %v", k.id, s.Status().Err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if text := logged.String(); strings.Contains(text, testToken) {
					t.Errorf("the log shows the token:\n%s", text)
				}
			})
		})
	}
}

// keyFile is the text of a connector's file.
func keyFile(id, token string) string {
	return fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q, "SecurityToken": %q}`, id, testSecret, token)
}

// TestNoTokenIsSentAfterARenewal replaces the file under a client whose old keys the server
// refuses. Its requests say what is in the way.
func TestNoTokenIsSentAfterARenewal(t *testing.T) {
	path := writeCredentials(t, 0o600, keyFile("OLDOLD", ""))
	source := openSource(t, CredentialsConfig{File: path, RefuseTokens: true})
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
	replaceCredentials(t, path, 0o600, keyFile("NEWNEW", testToken))
	b := &bubble{T: t, client: c}
	err = b.readSome(t.Context(), Demand)
	if !errors.Is(err, ErrAccessDenied) || !strings.Contains(err.Error(), ErrTokenExposed.Error()) || strings.Contains(err.Error(), testToken) {
		t.Errorf("reading: %v", err)
	}
	if _, err := c.As(Demand).Head(t.Context(), "key"); !errors.Is(err, ErrAccessDenied) {
		t.Errorf("asking: %v", err)
	}
	if requests.Load() == 0 || tokens.Load() != 0 {
		t.Errorf("of %d requests %d carried the token", requests.Load(), tokens.Load())
	}
}
