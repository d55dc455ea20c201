package credentials

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	for _, cfg := range []Config{
		{},
		{Kind: Environment},
		{File: path},
		{Kind: Static, AccessKeyID: testID, AccessKeySecret: testSecret, SecurityToken: testToken},
	} {
		cfg.RefuseTokens = true
		if _, err := Open(cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrTokenExposed) || strings.Contains(err.Error(), testToken) {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}

// TestATokenIsRefusedAfterARenewal gives keys with a token to a source that began with keys
// that have none, for each way in which a renewal begins.
func TestATokenIsRefusedAfterARenewal(t *testing.T) {
	for name, renew := range map[string]func(*testing.T, *Source, *fakeProvider){
		"its time has come": func(*testing.T, *Source, *fakeProvider) { time.Sleep(time.Hour) },
		"the place changed": func(_ *testing.T, _ *Source, p *fakeProvider) {
			p.dirty.Store(true)
			time.Sleep(changeInterval + time.Second)
		},
		"a request was refused": func(t *testing.T, s *Source, _ *fakeProvider) {
			s.Refreshed(t.Context(), s.Keys())
			synctest.Wait()
		},
		"a request was refused after a change": func(t *testing.T, s *Source, p *fakeProvider) {
			p.dirty.Store(true)
			if s.Refreshed(t.Context(), s.Keys()) {
				t.Error("the refused keys count as newer")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				p := &fakeProvider{life: time.Hour}
				p.plain.Store(true)
				s, err := openSourceOf(File, p, true, slog.New(slog.NewTextHandler(&logged, nil)))
				if err != nil {
					t.Fatal(err)
				}
				p.plain.Store(false)
				renew(t, s, p)
				if n := p.reads.Load(); n < 2 {
					t.Fatalf("the keys were read %d times", n)
				}
				if k := s.Keys(); k.ID != "id-1" || !k.Token.Empty() {
					t.Errorf("keys %s with a token are in force", k.ID)
				}
				if err := s.Status().Err; !errors.Is(err, ErrTokenExposed) {
					t.Errorf("status says %v", err)
				}
				p.plain.Store(true)
				time.Sleep(time.Hour)
				if k := s.Keys(); k.ID == "id-1" || s.Status().Err != nil {
					t.Errorf("keys without a token are not taken: %s, %v", k.ID, s.Status().Err)
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
