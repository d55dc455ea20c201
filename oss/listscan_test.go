package oss

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameAsXML fails the test if the scanner reads text in another way than
// encoding/xml, and returns whether it read it at all.
func sameAsXML(t *testing.T, text []byte) bool {
	t.Helper()
	got, ok := scanListing(text)
	if !ok {
		return false
	}
	var want listing
	if err := xml.Unmarshal(text, &want); err != nil {
		t.Fatalf("scanned what is no XML (%v):\n%s", err, text)
	}
	if diff := cmp.Diff(&want, got, cmpopts.IgnoreFields(listing{}, "XMLName"), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("scanned otherwise than encoding/xml (-xml +scan):\n%s\n%s", diff, text)
	}
	return true
}

const scannedPage = `<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://doc.oss-cn-hangzhou.aliyuncs.com">
<Name>bucket</Name><Prefix/><StartAfter></StartAfter><MaxKeys>2</MaxKeys><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated><NextContinuationToken>CgJiYw--</NextContinuationToken>
<Contents><Key>a%2Fb</Key><LastModified>2012-02-24T08:43:07.000Z</LastModified><ETag>&quot;5B3C&quot;</ETag><Type>Normal</Type><Size>344606</Size>
 <StorageClass>Standard</StorageClass><Owner><ID>0022012</ID><DisplayName>user &amp; co</DisplayName></Owner></Contents>
<Contents><Key>link</Key><LastModified>2012-02-24T08:43:07.000Z</LastModified><ETag>"5B3D"</ETag><Type>Symlink</Type><Size>7</Size></Contents>
<CommonPrefixes><Prefix>c%2F</Prefix></CommonPrefixes><KeyCount>3</KeyCount>
</ListBucketResult>
`

func TestScannerReadsWhatOSSSends(t *testing.T) {
	for _, text := range []string{scannedPage, string(listingOf(3)), "<ListBucketResult></ListBucketResult>"} {
		if !sameAsXML(t, []byte(text)) {
			t.Errorf("not read:\n%s", text)
		}
	}
}

func TestScannerLeavesTheRestToXML(t *testing.T) {
	for name, change := range map[string][2]string{
		"cut off":            {"</ListBucketResult>", ""},
		"comment":            {"<Name>", "<!-- c --><Name>"},
		"CDATA":              {"bucket", "<![CDATA[bucket]]>"},
		"raw UTF-8":          {"a%2Fb", "a/汉"},
		"numeric entity":     {"a%2Fb", "a&#x9;b"},
		"unknown entity":     {"a%2Fb", "a&nbsp;b"},
		"control character":  {"a%2Fb", "a\x01b"},
		"carriage return":    {"a%2Fb", "a\rb"},
		"attribute":          {"<Key>", `<Key x="y>">`},
		"prefixed element":   {"<Key>a%2Fb</Key>", "<x:Key>a%2Fb</x:Key>"},
		"text among fields":  {"<Type>", "text<Type>"},
		"wrong end":          {"</Type>", "</type>"},
		"child in a field":   {"Normal", "<b>Normal</b>"},
		"size of no number":  {"344606", "many"},
		"odd truth":          {"true", "yes"},
		"another encoding":   {"UTF-8", "GBK"},
		"another version":    {"1.0", "0"},
		"odd declaration":    {`"1.0"`, `'1.0'`},
		"text after the end": {"</ListBucketResult>\n", "</ListBucketResult>\nmore"},
		"another root":       {"ListBucketResult", "Error"},
	} {
		text := strings.Replace(scannedPage, change[0], change[1], 1)
		if text == scannedPage {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, ok := scanListing([]byte(text)); ok {
			t.Errorf("%s: read by the scanner", name)
		}
	}
}

func FuzzScanListing(f *testing.F) {
	f.Add([]byte(scannedPage))
	f.Add(listingOf(1))
	f.Add([]byte("<ListBucketResult><Contents><Key>]]&gt;</Key></Contents></ListBucketResult>"))
	f.Fuzz(func(t *testing.T, text []byte) { sameAsXML(t, text) })
}
