package sign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/iotest"
	"time"
)

type oneKey struct{}

func (oneKey) Lookup(id string) (Credential, bool) {
	return Credential{AccessKeyID: "ak", AccessKeySecret: "a secret that no input knows"}, id == "ak"
}

// No Authorization header and no query can be guessed right.
func FuzzVerify(f *testing.F) {
	for _, auth := range []string{
		"", "OSS ak:sig", "AWS ak:sig", "Bearer x", "OSS2 AccessKeyId:ak,AdditionalHeaders:host;range,Signature:x",
		"OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/aliyun_v4_request,AdditionalHeaders=host;range,Signature=" + emptyHash,
		"AWS4-HMAC-SHA256 Credential=ak/20231216/r/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + emptyHash,
	} {
		f.Add(auth, "acl&uploadId=a%20b", "20231216T162057Z")
	}
	for _, query := range []string{
		"x-oss-signature-version=OSS2&x-oss-access-key-id=ak&x-oss-expires=1802743657&x-oss-signature=x",
		"OSSAccessKeyId=ak&Expires=1802743657&Signature=x", "AWSAccessKeyId=ak&Expires=1802743657&Signature=x",
		"x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=ak/20231216/r/oss/aliyun_v4_request&x-oss-date=20231216T162057Z&x-oss-expires=9&x-oss-signature=x",
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ak/20231216/r/s3/aws4_request&X-Amz-Date=20231216T162057Z&X-Amz-Expires=9&X-Amz-SignedHeaders=host&X-Amz-Signature=" + emptyHash,
	} {
		f.Add("", query, "")
	}
	now := time.Date(2023, 12, 16, 16, 20, 57, 0, time.UTC)
	v := New(Config{Keys: oneKey{}, Now: func() time.Time { return now }})
	f.Fuzz(func(t *testing.T, auth, query, date string) {
		r := &http.Request{
			Method: "GET", Host: "h", URL: &url.URL{Path: "/b/k", RawQuery: query},
			Header: http.Header{"X-Oss-Date": {date}, "X-Amz-Content-Sha256": {"UNSIGNED-PAYLOAD"}},
		}
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		id, e := v.Verify(r, "b", "k")
		switch {
		case e == nil && (!id.Anonymous || auth != ""):
			t.Errorf("accepted as %+v", id)
		case e != nil && (e.Status < 400 || e.Code == "" || e.Message == ""):
			t.Errorf("refused with %+v", e)
		}
	})
}

// What the parser takes for an authorization says so when it is written again.
func FuzzParseAuthorization(f *testing.F) {
	f.Add("Credential=a/20231216/r/s3/aws4_request, SignedHeaders=host;x, Signature=abc")
	f.Add("Credential=a/b/20231216/r/s3/aws4_request,Signature=abc")
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := parseAuthorization(text, "SignedHeaders")
		if !ok {
			return
		}
		again := "Signature=" + a.signature + " , Credential=" + a.credential
		if a.hasHeaders {
			again = "SignedHeaders=" + a.headers + "," + again
		}
		b, ok := parseAuthorization(again, "SignedHeaders")
		if !ok || a != b {
			t.Errorf("%q parsed as %+v, again as %+v", text, a, b)
		}
		if sc, ok := parseScope(a.credential, sigV4Terminator); ok {
			if sc.accessKeyID+"/"+sc.text != a.credential || len(sc.day) != 8 || sc.region == "" || sc.product == "" {
				t.Errorf("%q has the scope %+v", a.credential, sc)
			}
		}
	})
}

// Encoding a path once more changes nothing, and names the same path.
func FuzzAppendPath(f *testing.F) {
	f.Add("/b/a%2Fb c%zz%e4%")
	f.Fuzz(func(t *testing.T, path string) {
		once := string(appendPath(nil, path))
		if twice := string(appendPath(nil, once)); twice != once {
			t.Errorf("%q becomes %q, then %q", path, once, twice)
		}
		got, err := url.PathUnescape(once)
		if err != nil {
			t.Fatalf("%q becomes %q: %v", path, once, err)
		}
		if want, err := url.PathUnescape(path); err == nil && path != "" && got != want {
			t.Errorf("%q becomes %q, which names %q", path, once, got)
		}
	})
}

// The decoder gives the same bytes and the same verdict however the body
// arrives, never more than the framing holds, and an *Error or io.EOF at its end.
func FuzzChunkedBody(f *testing.F) {
	f.Add([]byte("4\r\nsome\r\n0\r\n\r\n"), int64(4), false)
	f.Add([]byte("4;chunk-signature="+emptyHash+"\r\nsome\r\n0;chunk-signature="+emptyHash+"\r\n\r\n"), int64(-1), true)
	f.Add([]byte("1\na\n0\nx-amz-checksum-crc32:6Le+Qw==\n\n"), int64(1), false)
	f.Fuzz(func(t *testing.T, raw []byte, declared int64, signed bool) {
		decode := func(r io.Reader) (string, error) {
			b := newChunkedBody(io.NopCloser(r), max(declared, -1))
			b.trailer = newTrailer([]string{"x-amz-checksum-crc32"})
			if signed {
				b.chain = (&chunkChain{key: []byte("k"), stamp: "t", scope: "s", previous: "p"}).start()
			}
			got, err := io.ReadAll(b)
			return string(got), err
		}
		whole, err := decode(bytes.NewReader(raw))
		pieces, err2 := decode(iotest.OneByteReader(bytes.NewReader(raw)))
		if whole != pieces || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("%q, %v at once, but %q, %v byte by byte", whole, err, pieces, err2)
		}
		if len(whole) > len(raw) || declared >= 0 && int64(len(whole)) > declared {
			t.Errorf("%d bytes out of %d, %d declared", len(whole), len(raw), declared)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("ends with %v", err)
		}
		if signed && err == nil {
			t.Error("the signatures were guessed")
		}
	})
}

// Whatever is framed is read back.
func FuzzChunkedRoundTrip(f *testing.F) {
	f.Add([]byte("some content"), uint8(5))
	f.Fuzz(func(t *testing.T, content []byte, size uint8) {
		var raw bytes.Buffer
		for part := content; len(part) > 0; {
			n := min(int(size)+1, len(part))
			fmt.Fprintf(&raw, "%x\r\n%s\r\n", n, part[:n])
			part = part[n:]
		}
		raw.WriteString("0\r\n\r\n")
		got, err := io.ReadAll(newChunkedBody(io.NopCloser(&raw), int64(len(content))))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%q, %v, want %q", got, err, content)
		}
	})
}
