package ossemu

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheFramingIsNotStoredAsEncoding(t *testing.T) {
	for header, want := range map[string]string{
		"aws-chunked": "", "gzip,aws-chunked": "gzip", "aws-chunked, gzip": "gzip", "gzip": "gzip", "": "",
	} {
		if got := storedEncoding(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func TestQueriesAreReadAsTheyAreWritten(t *testing.T) {
	got := parseQuery("uploads&prefix=a%20b+c&delimiter=/&empty=&x=1;y=2&bad=%zz&&k=a=b")
	want := query{{"uploads", ""}, {"prefix", "a b c"}, {"delimiter", "/"}, {"empty", ""}, {"x", "1;y=2"}, {"bad", "%zz"}, {"k", "a=b"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(parameter{})); d != "" {
		t.Error(d)
	}
	if !got.has("uploads") || got.has("nothing") {
		t.Error("has")
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("a=b&c")
	f.Add("%zz=%&;")
	f.Fuzz(func(t *testing.T, raw string) {
		want, err := url.ParseQuery(raw)
		if err != nil {
			parseQuery(raw)
			return
		}
		q := parseQuery(raw)
		for name, values := range want {
			if got := q.get(name); got != values[0] {
				t.Errorf("%q in %q: %q, want %q", name, raw, got, values[0])
			}
		}
	})
}

// FuzzRange holds the range parser against its promises.
func FuzzRange(f *testing.F) {
	for _, h := range []string{"bytes=0-1", "bytes=5-", "bytes=-3", "bytes=9-2", "bytes=0-1,4-5", "bytes=99999999999999999999-", "byte=1", "bytes=-0"} {
		f.Add(h, int64(10))
		f.Add(h, int64(0))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		for _, rules := range []rangeRules{rangeLenient, rangeStandard, rangeRFC} {
			off, n, verdict := resolveRange(header, size, rules)
			switch verdict {
			case rangeWhole:
				if off != 0 || n != size {
					t.Errorf("%q of %d: whole is %d+%d", header, size, off, n)
				}
			case rangePartial:
				if off < 0 || n <= 0 || off > size-n {
					t.Errorf("%q of %d: part is %d+%d", header, size, off, n)
				}
			case rangeUnsatisfiable:
				if rules == rangeLenient {
					t.Errorf("%q of %d: refused", header, size)
				}
			}
		}
	})
}

func TestXMLOfRequests(t *testing.T) {
	root, err := parseXML([]byte("\ufeff<?xml version=\"1.0\"?><!-- c --><ns:Delete xmlns=\"x>y\"\n a='1'><Quiet>\n true</Quiet><Object><Key><![CDATA[a<&b]]>&amp;&#1;&#x41;</Key></Object><Empty/></ns:Delete>\n"))
	if err != nil {
		t.Fatal(err)
	}
	if root.name != "Delete" || root.value("Quiet") != "\n true" || root.child("Object").value("Key") != "a<&b&\x01A" || root.child("Empty") == nil {
		t.Errorf("%+v", root)
	}
	deep := strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100)
	for _, bad := range []string{
		"", "text", "<a>", "<a></b>", "<a/><b/>", "<a>&unknown;</a>", "<a>&#xZZ;</a>", "<a>&amp</a>", "<a", "<!DOCTYPE a [<!ENTITY b \"c\">]><a/>",
		"</a>", "<a><!-- </a>", "<a><![CDATA[</a>", "<>", "< a/>", "x<a/>", deep, "<a>&#x110000;</a>",
	} {
		if e, err := parseXML([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, e)
		}
	}
}

// FuzzXML reads arbitrary documents, and what is written of them again.
func FuzzXML(f *testing.F) {
	f.Add([]byte("<Delete><Quiet>true</Quiet><Object><Key>a&amp;b</Key></Object></Delete>"))
	f.Add([]byte("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&#34;A&#34;</ETag></Part></CompleteMultipartUpload>"))
	f.Add([]byte("<?xml version='1.0'?><a b='>'><![CDATA[x]]><!-- y --><c/></a>"))
	f.Fuzz(func(t *testing.T, b []byte) {
		root, err := parseXML(b)
		if err != nil {
			return
		}
		d := &document{}
		writeElement(d, root)
		again, err := parseXML(d.b)
		if err != nil {
			t.Fatalf("%q became %q: %v", b, d.b, err)
		}
		if diff := cmp.Diff(root, again, cmp.AllowUnexported(element{})); diff != "" {
			t.Fatalf("%q became %q: %s", b, d.b, diff)
		}
		_, _, _ = parseDelete(b)
	})
}

func writeElement(d *document, e *element) {
	d.open(e.name)
	d.b = appendEscaped(d.b, e.text)
	for _, c := range e.children {
		writeElement(d, c)
	}
	d.close(e.name)
}

func TestEncodedNamesDecodeBothWays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, rng.IntN(20))
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		encoded := urlEncode(string(b))
		for _, decode := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape} {
			if got, err := decode(encoded); err != nil || got != string(b) {
				t.Fatalf("%q: %q, %v", b, got, err)
			}
		}
	}
}
