package oss

import (
	"fmt"
	"log/slog"
)

// secret is text that no printing shows. The text lies behind a pointer because
// fmt cannot call the methods of unexported fields and would print the text of a
// plain string; of a pointer it prints the address.
type secret struct{ text *string }

var (
	_ fmt.Formatter  = secret{}
	_ slog.LogValuer = secret{}
)

const hiddenSecret = "[secret]"

func newSecret(text string) secret { return secret{&text} }

// reveal returns the text. It is for signing and for nothing else.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

func (s secret) empty() bool { return s.reveal() == "" }

func (s secret) equal(other secret) bool { return s.reveal() == other.reveal() }

// Format writes a placeholder for every verb, %x and %#v included.
func (s secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hiddenSecret)) }

// LogValue returns a placeholder.
func (s secret) LogValue() slog.Value { return slog.StringValue(hiddenSecret) }

// MarshalText returns a placeholder, so that JSON and YAML show no secret.
func (s secret) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// shorten shows enough of an access key id to tell two of them apart.
func shorten(id string) string {
	if len(id) <= 8 {
		return id
	}
	return id[:4] + "…" + id[len(id)-4:]
}
