package conformance

import (
	"math/rand/v2"
	"testing"
)

// content returns n bytes that look random and are the same for the same seed.
func content(n int, seed byte) []byte {
	b := make([]byte, n)
	// A ChaCha8 never fails to fill its argument.
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// oddKeys are keys that encodings treat each in their own way.
func oddKeys() []string {
	return []string{
		"plain", "dir/nested/deep", "space in name", "plus+plus", "per%cent%2F", "ünïcödé/你好", "a&b=c;d?e#f",
		"quote'\"<>", "dir//double", "trailing/", "./dot/../dots", "tilde~(paren)!*", "tab\tand\nline", "\\back|pipe^`",
	}
}

// sameBytes fails unless got is want, and says where they part.
func sameBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: byte %d is %#02x, want %#02x", what, i, got[i], want[i])
			return
		}
	}
}
