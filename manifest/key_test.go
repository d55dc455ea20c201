package manifest

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestKeyOf(t *testing.T) {
	for _, c := range []struct {
		prefix, dir, name string
		key               string
		err               error
	}{
		{"", "", "a", "a", nil},
		{"p/", "a/b", "c", "p/a/b/c", nil},
		{"p/", "a/%~", "c", "p/a//c", nil},
		{"", "", ".%~", ".", nil},
		{"", "", "a%~", "", syscall.EILSEQ},
		{"", "", "a%~file", "", syscall.EILSEQ},
		{"", "", ".pailfs", "", syscall.EACCES},
		{"p/", "", ".pailfs", "p/.pailfs", nil},
		{"", "", "\\a", "", syscall.EILSEQ},
		{"p/", "", "\\a", "p/\\a", nil},
		{"", "", strings.Repeat("x", 256), "", syscall.ENAMETOOLONG},
		{"", strings.Repeat(strings.Repeat("x", 250)+"/", 4) + "y", "0123456789012345678", "", syscall.ENAMETOOLONG},
	} {
		key, err := KeyOf(c.prefix, c.dir, c.name)
		if key != c.key || !errors.Is(err, c.err) {
			t.Errorf("KeyOf(%q, %.20q, %.20q) = %q, %v, want %q, %v", c.prefix, c.dir, c.name, key, err, c.key, c.err)
		}
	}
}
