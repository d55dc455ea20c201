package bare

import (
	"net/http"
	"testing"
)

// The vendor's documentation gives this request and its signature.
func TestSignatureOfTheDocumentedRequest(t *testing.T) {
	header := http.Header{}
	header.Set("Content-Md5", "ODBGOERFMDMzQTczRUY3NUE3NzA5QzdFNUYzMDQxNEM=")
	header.Set("Content-Type", "text/html")
	header.Set("Date", "Thu, 17 Nov 2005 18:49:58 GMT")
	header.Set("X-Oss-Meta-Author", "foo@bar.com")
	header.Set("X-Oss-Magic", "abracadabra")
	got := signature("OtxrzxIsfpFjA7SwPzILwy8Bw21TLhquhboDYROV", "PUT", header, resource("oss-example", "nelson", ""))
	if want := "26NBxoKdsyly4EDv6inkoDft/yA="; got != want {
		t.Errorf("signature %q, want %q", got, want)
	}
}

func TestResourceNamesCoveredParametersOnly(t *testing.T) {
	for _, c := range []struct{ key, query, want string }{
		{"", "", "/b/"},
		{"a b/c", "", "/b/a b/c"},
		{"k", "uploads", "/b/k?uploads"},
		{"k", "partNumber=3&uploadId=AB", "/b/k?partNumber=3&uploadId=AB"},
		{"", "list-type=2&max-keys=1000&prefix=x&continuation-token=a%3D", "/b/?continuation-token=a="},
		{"", "delete", "/b/?delete"},
	} {
		if got := resource("b", c.key, c.query); got != c.want {
			t.Errorf("resource of %q ? %q is %q, want %q", c.key, c.query, got, c.want)
		}
	}
}
