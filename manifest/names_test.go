package manifest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNamesOfComponents(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, test := range []struct {
		component string
		beside    bool
		name      string
	}{
		{"a", false, "a"},
		{".a", false, ".a"},
		{"...", false, "..."},
		{"a%00b", false, "a%00b"},
		{"100%", false, "100%"},
		{"%", false, "%"},
		{"~", false, "~"},
		{"a\nb\t\x01\x7f", false, "a\nb\t\x01\x7f"},
		{"\xff\xfe", false, "\xff\xfe"},
		{`a\b`, false, `a\b`},
		{long, false, long},
		{"", false, "%~"},
		{".", false, ".%~"},
		{"..", false, "..%~"},
		{"a\x00b", false, "a%00b%~"},
		{"\x00", false, "%00%~"},
		{"a%~", false, "a%25~%~"},
		{"%~", false, "%25~%~"},
		{"a%~file", false, "a%25~file%~"},
		{"a", true, "a%~file"},
		{"", true, "%~file"},
		{"..", true, "..%~file"},
		{"50%", true, "50%25%~file"},
		{"a\x00", true, "a%00%~file"},
	} {
		if got := nameOf(test.component, test.beside); got != test.name {
			t.Errorf("nameOf(%q, %v) is %q, want %q", test.component, test.beside, got, test.name)
		}
		component, beside, ok := componentOf(test.name)
		if !ok || component != test.component || beside != test.beside {
			t.Errorf("componentOf(%q) is %q, %v, %v", test.name, component, beside, ok)
		}
	}
}

func TestNamesThatNothingIsShownAs(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00b", "a%~", "x%2%~", "a%25%~", "%zz%~", "a%~%~", "a%~file%~", "a%25%~x%~", strings.Repeat("x", 256)} {
		if component, beside, ok := componentOf(name); ok {
			t.Errorf("componentOf(%q) is %q, %v", name, component, beside)
		}
	}
}

// component draws what stands between the slashes of keys, nasty ones often.
func component() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "ab", "a-", "a-b", "a.", "a0", "a~", "A", "é", "日"}),
		rapid.SampledFrom([]string{"", ".", "..", "%", "%~", "a%~", "%~file", "a%~file", "a%25~", "\x00", "a\x00b", "%00", "\xff", "a\xffb", "\n", "\U0010FFFF", "a\uE000"}),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, '%', '~', '-', '.', '0', 'a', 0x7f, 0xff}), 0, 6), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(245, 260), func(n int) string { return strings.Repeat("n", n) }),
	)
}

func TestEveryComponentHasItsOwnName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pair struct {
			component string
			beside    bool
		}
		seen := map[string]pair{}
		for range 20 {
			p := pair{component().Draw(t, "component"), rapid.Bool().Draw(t, "beside")}
			name := nameOf(p.component, p.beside)
			if other, ok := seen[name]; ok && other != p {
				t.Fatalf("%v and %v are both shown as %q", p, other, name)
			}
			seen[name] = p
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
				t.Fatalf("%v is shown as %q, which is no name", p, name)
			}
			component, beside, ok := componentOf(name)
			if len(name) <= maxName && (!ok || component != p.component || beside != p.beside) {
				t.Fatalf("%v is shown as %q, which means %q, %v, %v", p, name, component, beside, ok)
			}
		}
	})
}

func FuzzComponentOf(f *testing.F) {
	for _, s := range []string{"a", "%~", "a%25~%~", "..%~file", "%00%~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		component, beside, ok := componentOf(name)
		if ok && nameOf(component, beside) != name {
			t.Fatalf("%q means %q, which is shown as %q", name, component, nameOf(component, beside))
		}
	})
}
