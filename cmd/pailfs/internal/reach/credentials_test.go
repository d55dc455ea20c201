package reach

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss/credentials"
)

// Which addresses are this machine's stands in TestWhichEndpointsAreExposed, and what
// becomes of a token that comes later in TestATokenIsRefusedAfterARenewal, of package oss.
func TestPlainHTTPIsWarnedOfAndRefusedWithATokenOnly(t *testing.T) {
	file := func(token string) string {
		path := filepath.Join(t.TempDir(), "keys")
		text := `{"AccessKeyId": "key", "AccessKeySecret": "secret", "SecurityToken": "` + token + `"}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, session := file(""), file("a token of a session")
	for _, row := range []struct {
		endpoint, keys   string
		allow            bool
		warned, refusing bool
	}{
		{"https://oss.example", session, false, false, false},
		{"http://oss.example", plain, false, true, false},
		{"http://oss.example", session, false, false, true},
		{"http://oss.example", session, true, true, false},
		{"http://127.0.0.1:9000", session, false, false, false},
	} {
		l := &config.Loaded{Config: config.Config{
			Endpoint: row.endpoint, AllowPlainHTTP: row.allow, Credentials: "file", CredentialsFile: row.keys,
		}}
		source, warning, err := OpenCredentials(l, slog.New(slog.DiscardHandler))
		if (warning != "") != row.warned || errors.Is(err, credentials.ErrTokenExposed) != row.refusing || (err != nil) != row.refusing {
			t.Errorf("%+v: warned %q, refused %v", row, warning, err)
		}
		if err == nil {
			_ = source.Close()
		}
	}
}
