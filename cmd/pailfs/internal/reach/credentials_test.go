package reach

import (
	"log/slog"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
)

func TestPlainHTTPIsWarnedOfAndRefusedWithATokenOnly(t *testing.T) {
	source := func(token string) *oss.CredentialSource {
		s, err := oss.OpenCredentials(oss.CredentialsConfig{
			Kind: oss.CredentialsStatic, AccessKeyID: "key", AccessKeySecret: "secret", SecurityToken: token,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	plain, session := source(""), source("a token of a session")
	for _, row := range []struct {
		endpoint         string
		keys             *oss.CredentialSource
		allow            bool
		warned, refusing bool
	}{
		{"https://oss.example", session, false, false, false},
		{"oss.example", session, false, false, false},
		{"http://oss.example", plain, false, true, false},
		{"http://oss.example", nil, false, true, false},
		{"http://oss.example", session, false, false, true},
		{"http://oss.example", session, true, true, false},
		{"http://10.0.0.1:9000", session, false, false, true},
		{"http://127.0.0.1:9000", session, false, false, false},
		{"http://[::1]:9000", session, false, false, false},
		{"http://localhost:9000", session, false, false, false},
		{"http://localhost.example", session, false, false, true},
	} {
		warning, err := checkPlainHTTP(&config.Config{Endpoint: row.endpoint, AllowPlainHTTP: row.allow}, row.keys)
		if (warning != "") != row.warned || (err != nil) != row.refusing {
			t.Errorf("%+v: warned %q, refused %v", row, warning, err)
		}
	}
}
