// Package secrettest lets tests look for secrets in what is printed, logged and encoded.
package secrettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// NotShown fails t if a value shows one of the secrets: printed with any verb of fmt, logged as
// text or as JSON, or encoded as JSON.
func NotShown(t testing.TB, secrets []string, values ...any) {
	t.Helper()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	jsonLog := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range values {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, format+"\n", v)
		}
		log.Info("value", "v", v)
		jsonLog.Info("value", "v", v)
		if text, err := json.Marshal(v); err == nil {
			out.Write(text)
		}
	}
	for _, secret := range secrets {
		for _, hidden := range []string{secret, fmt.Sprintf("%x", secret)} {
			if at := strings.Index(out.String(), hidden); at >= 0 {
				t.Errorf("a secret is shown: %s", out.String()[max(0, at-200):at+len(hidden)])
			}
		}
	}
}
