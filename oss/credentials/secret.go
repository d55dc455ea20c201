package credentials

import (
	"fmt"
	"log/slog"
)

// Secret is text that no printing shows. The text lies behind a pointer because
// fmt cannot call the methods of unexported fields and would print the text of a
// plain string; of a pointer it prints the address.
type Secret struct{ text *string }

var (
	_ fmt.Formatter  = Secret{}
	_ slog.LogValuer = Secret{}
)

const hiddenSecret = "[secret]"

func newSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text. It is for signing and for nothing else.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.Reveal() == "" }

func (s Secret) equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// Format writes "[secret]" for every verb, %x and %#v included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hiddenSecret)) }

// LogValue returns "[secret]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(hiddenSecret) }

// MarshalText returns "[secret]", so that JSON and YAML show nothing else.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// shorten shows enough of an access key id to tell two of them apart.
func shorten(id string) string {
	if len(id) <= 8 {
		return id
	}
	return id[:4] + "…" + id[len(id)-4:]
}
