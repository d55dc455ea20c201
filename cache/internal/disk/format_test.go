package disk

import (
	"path/filepath"
	"testing"
)

func FuzzFormat(f *testing.F) {
	f.Add([]byte(FormatMagic + "version 1\n"))
	f.Add([]byte(FormatMagic + "version 2\n"))
	f.Add([]byte(FormatMagic + "version 3\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := checkFormat(b)
		ours := string(b) == FormatMagic+"version 1\n" || string(b) == FormatMagic+"version 2\n"
		if ours != (err == nil) {
			t.Errorf("%q gave %v", b, err)
		}
	})
}

func FuzzFileName(f *testing.F) {
	f.Add("ab", "abcd0123456789abcdef0123456789ab")
	f.Fuzz(func(t *testing.T, dir, name string) {
		id, ok := ParseFileName(dir, name)
		if ok && FileName(id) != filepath.Join(ObjectsName, dir, name) {
			t.Errorf("%q/%q is %v", dir, name, id)
		}
	})
}
