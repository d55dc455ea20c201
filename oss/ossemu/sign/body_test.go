package sign_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

const (
	signedStream         = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailerStream  = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailerSteam = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// put is a signed upload whose body follows.
func put(t *testing.T, s *s3Signer, payload string, headers ...string) *http.Request {
	t.Helper()
	r := s3Request(t, "PUT", "/b/k", "")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.now = time.Now()
	s.sign(r, payload)
	return r
}

// received verifies r and reads body as its body.
func received(t *testing.T, v *sign.Verifier, r *http.Request, body string) (string, int64, *sign.Error) {
	t.Helper()
	r.Body = io.NopCloser(iotest.HalfReader(strings.NewReader(body)))
	r.ContentLength = int64(len(body))
	return content(v, r, mustAccept(t, v, r, "b", "k"))
}

func s3Verifier() *sign.Verifier { return sign.New(sign.Config{Keys: pairOf(s3ID, s3Secret)}) }

func crc32Of(text string) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text))))
}

// The body of the published example: two chunks of "a", 65,536 and 1,024.
func publishedChunks(seed string, trailer ...string) (head []string, body string) {
	payload := signedStream
	if trailer != nil {
		payload = signedTrailerStream
	}
	head = []string{
		"PUT /examplebucket/chunkObject.txt HTTP/1.1", "Host: s3.amazonaws.com", "x-amz-date: 20130524T000000Z",
		"x-amz-storage-class: REDUCED_REDUNDANCY", "x-amz-content-sha256: " + payload, "Content-Encoding: aws-chunked",
		"x-amz-decoded-content-length: 66560",
	}
	names := "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class"
	chunks := []string{
		"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
	}
	if trailer != nil {
		head = append(head, "x-amz-trailer: x-amz-checksum-crc32c")
		names = strings.Replace(names, "content-length;", "", 1) + ";x-amz-trailer"
		chunks = []string{
			"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
			"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
			"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
		}
	}
	head = append(head, docScope+"SignedHeaders="+names+",Signature="+seed)
	body = "10000;chunk-signature=" + chunks[0] + "\r\n" + strings.Repeat("a", 65536) + "\r\n" +
		"400;chunk-signature=" + chunks[1] + "\r\n" + strings.Repeat("a", 1024) + "\r\n" +
		"0;chunk-signature=" + chunks[2] + "\r\n"
	for _, line := range trailer {
		body += line + "\r\n"
	}
	body += "\r\n"
	return append(head, "Content-Length: "+strconv.Itoa(len(body))), body
}

func TestPublishedChunksAreAccepted(t *testing.T) {
	v := sign.New(sign.Config{Keys: pairOf(docID, docSecret), Now: at(t, "2013-05-24T00:00:00Z"), S3Strict: true})
	head, body := publishedChunks("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9")
	r := request(t, body, head...)
	text, n, e := content(v, r, mustAccept(t, v, r, "examplebucket", "chunkObject.txt"))
	if e != nil || n != 66560 || text != strings.Repeat("a", 66560) {
		t.Errorf("%d bytes of %d, %v", len(text), n, e)
	}
}

func TestPublishedTrailerIsAccepted(t *testing.T) {
	v := sign.New(sign.Config{Keys: pairOf(docID, docSecret), Now: at(t, "2013-05-24T00:00:00Z")})
	head, body := publishedChunks("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
		"x-amz-checksum-crc32c:sOO8/Q==", "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435")
	r := request(t, body, head...)
	text, n, e := content(v, r, mustAccept(t, v, r, "examplebucket", "chunkObject.txt"))
	if e != nil || n != 66560 || text != strings.Repeat("a", 66560) {
		t.Errorf("%d bytes of %d, %v", len(text), n, e)
	}
}

func TestPayloadHashIsCompared(t *testing.T) {
	v, s := s3Verifier(), &s3Signer{}
	for _, body := range []string{"", "content", strings.Repeat("long ", 100_000)} {
		r := put(t, s, sha([]byte(body)))
		if text, n, e := received(t, v, r, body); e != nil || text != body || n != int64(len(body)) {
			t.Errorf("%d bytes of %d, %v", len(text), n, e)
		}
		if _, _, e := received(t, v, r, body+"x"); e == nil || e.Code != "XAmzContentSHA256Mismatch" || e.Status != http.StatusBadRequest {
			t.Errorf("a longer body is refused with %v", e)
		}
		r.Header.Set("X-Amz-Content-Sha256", sha([]byte(body+"y")))
		mustRefuse(t, v, r, "b", "k", "SignatureDoesNotMatch")
	}
}

// A reader that takes exactly the announced bytes and never asks for io.EOF
// learns of the mismatch with the last of them.
func TestPayloadHashIsComparedWithTheLastByte(t *testing.T) {
	v := s3Verifier()
	r := put(t, &s3Signer{}, sha([]byte("right")))
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("wrong")), 5
	body, _, e := v.Body(r, mustAccept(t, v, r, "b", "k"))
	if e != nil {
		t.Fatal(e)
	}
	n, err := body.Read(make([]byte, 5))
	if n != 5 || !errors.As(err, &e) || e.Code != "XAmzContentSHA256Mismatch" {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := body.Read(make([]byte, 5)); !errors.As(err, &e) {
		t.Errorf("the error does not stay: %v", err)
	}
}

func TestUnsignedPayloadIsTakenAsItIs(t *testing.T) {
	v := s3Verifier()
	if text, n, e := received(t, v, put(t, &s3Signer{}, "UNSIGNED-PAYLOAD"), "content"); e != nil || text != "content" || n != 7 {
		t.Errorf("%q of %d, %v", text, n, e)
	}
}

func TestPayloadsThatSayNothingAreRefused(t *testing.T) {
	v := s3Verifier()
	for payload, want := range map[string]string{
		"abc":                     "InvalidArgument",
		strings.ToUpper(emptySHA): "InvalidArgument",
		"STREAMING-SOMETHING":     "InvalidArgument",
		"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD": "InvalidArgument",
	} {
		if _, _, e := received(t, v, put(t, &s3Signer{}, payload), "content"); e == nil || e.Code != want || e.Details["ArgumentName"] != "x-amz-content-sha256" {
			t.Errorf("%s: refused with %+v", payload, e)
		}
	}
}

func TestNativeBodiesAreTakenAsTheyAre(t *testing.T) {
	v := sign.New(sign.Config{Keys: keys{}})
	r := request(t, "1\r\na\r\n", "PUT /k HTTP/1.1", "Host: h", "Content-Length: 6", "Content-Encoding: aws-chunked")
	if text, n, e := content(v, r, mustAccept(t, v, r, "b", "k")); e != nil || text != "1\r\na\r\n" || n != 6 {
		t.Errorf("%q of %d, %v", text, n, e)
	}
}

// uploads returns every variant of aws-chunked. Frame makes the body once the
// signature in the header is known, for the chunks go on from it.
func uploads(t *testing.T, pieces ...string) map[string]func(s *s3Signer) (*http.Request, string) {
	whole := strings.Join(pieces, "")
	length := strconv.Itoa(len(whole))
	sum := "x-amz-checksum-crc32:" + crc32Of(whole)
	return map[string]func(s *s3Signer) (*http.Request, string){
		"signed": func(s *s3Signer) (*http.Request, string) {
			r := put(t, s, signedStream, "X-Amz-Decoded-Content-Length", length, "Content-Encoding", "aws-chunked")
			b := s.chunks(true, pieces...)
			b.WriteString("\r\n")
			return r, b.String()
		},
		"signed with trailer": func(s *s3Signer) (*http.Request, string) {
			r := put(t, s, signedTrailerStream, "X-Amz-Decoded-Content-Length", length, "X-Amz-Trailer", "x-amz-checksum-crc32")
			b := s.chunks(true, pieces...)
			s.trailer(b, true, sum)
			return r, b.String()
		},
		"unsigned with trailer": func(s *s3Signer) (*http.Request, string) {
			r := put(t, s, unsignedTrailerSteam, "X-Amz-Decoded-Content-Length", length, "X-Amz-Trailer", "x-amz-checksum-crc32")
			b := s.chunks(false, pieces...)
			s.trailer(b, false, sum)
			return r, b.String()
		},
		"unsigned of unknown length": func(s *s3Signer) (*http.Request, string) {
			r := put(t, s, unsignedTrailerSteam, "X-Amz-Trailer", "x-amz-checksum-crc32")
			b := s.chunks(false, pieces...)
			s.trailer(b, false, sum)
			return r, b.String()
		},
	}
}

func TestChunkedBodiesAreDecoded(t *testing.T) {
	v := s3Verifier()
	for _, pieces := range [][]string{nil, {"a"}, {"some", " ", "content"}, {strings.Repeat("x", 65536), strings.Repeat("y", 65536), "z"}} {
		whole := strings.Join(pieces, "")
		for name, make := range uploads(t, pieces...) {
			r, body := make(&s3Signer{})
			text, n, e := received(t, v, r, body)
			if e != nil || text != whole {
				t.Errorf("%s: %d bytes of %d, %v", name, len(text), len(whole), e)
			}
			if known := !strings.Contains(name, "unknown"); known && n != int64(len(whole)) || !known && n != -1 {
				t.Errorf("%s: length %d", name, n)
			}
		}
	}
}

// Whatever byte of a framed body is changed, added or lost: no reader gets
// another content with io.EOF behind it.
func TestChangedChunksNeverEndWell(t *testing.T) {
	v := s3Verifier()
	const whole = "some content"
	for name, make := range uploads(t, "some", " content") {
		t.Run(name, func(t *testing.T) {
			r, body := make(&s3Signer{})
			id := mustAccept(t, v, r, "b", "k")
			try := func(what, changed string) {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
				if text, _, e := content(v, r, id); e == nil && text != whole {
					t.Errorf("%s: got %q without an error", what, text)
				}
			}
			for i := range len(body) {
				b := []byte(body)
				b[i] ^= 1
				try("changed byte "+strconv.Itoa(i), string(b))
				try("lost byte "+strconv.Itoa(i), body[:i]+body[i+1:])
				try("doubled byte "+strconv.Itoa(i), body[:i+1]+body[i:])
				try("cut at "+strconv.Itoa(i), body[:i])
			}
			for i := 1; i < 16; i++ {
				try("added chunk", strings.Replace(body, "\r\n0", "\r\n1\r\nx\r\n0", 1))
				try("dropped chunk", strings.Replace(body, "4", "0", 1))
			}
		})
	}
}

func TestChunkRefusalsSayWhy(t *testing.T) {
	v := s3Verifier()
	long := strings.Repeat("x", 5000)
	for _, row := range []struct {
		name, variant string
		change        func(body string) string
		code          string
		status        int
	}{
		{"chunk signature", "signed", func(b string) string { return strings.Replace(b, "some", "sOme", 1) }, "SignatureDoesNotMatch", 403},
		{"trailer signature", "signed with trailer", func(b string) string { return strings.Replace(b, "x-amz-checksum-crc32:", "x-amz-checksum-crc32:A", 1) }, "SignatureDoesNotMatch", 403},
		{"no trailer signature", "signed with trailer", func(b string) string { return b[:strings.Index(b, "x-amz-trailer-signature")] + "\r\n" }, "SignatureDoesNotMatch", 403},
		{"checksum", "unsigned with trailer", func(b string) string { return strings.Replace(b, "some", "sOme", 1) }, "BadDigest", 400},
		{"missing trailer", "unsigned with trailer", func(b string) string { return b[:strings.Index(b, "x-amz")] + "\r\n" }, "MalformedTrailerError", 400},
		{"trailer without colon", "unsigned with trailer", func(b string) string { return strings.Replace(b, "32:", "32", 1) }, "MalformedTrailerError", 400},
		{"trailer twice", "unsigned with trailer", func(b string) string {
			i := strings.Index(b, "x-amz")
			return b[:i] + strings.TrimSuffix(b[i:], "\r\n") + b[i:]
		}, "MalformedTrailerError", 400},
		{"endless trailer", "unsigned with trailer", func(b string) string {
			lines := ""
			for i := range 100 {
				lines += "n" + strconv.Itoa(i) + ":v\r\n"
			}
			return strings.TrimSuffix(b, "\r\n") + lines + "\r\n"
		}, "MalformedTrailerError", 400},
		{"unsigned chunk", "signed", func(b string) string { return strings.ReplaceAll(b, ";chunk-signature", ";x") }, "InvalidRequest", 400},
		{"size", "signed", func(b string) string { return "zz" + b }, "InvalidRequest", 400},
		{"huge size", "unsigned of unknown length", func(b string) string { return "ffffffffffffffff" + b }, "InvalidRequest", 400},
		{"long line", "signed", func(b string) string { return "1;" + long + b }, "InvalidRequest", 400},
		{"endless line", "signed", func(b string) string { return strings.Repeat(long, 20) }, "InvalidRequest", 400},
		{"more behind the end", "signed", func(b string) string { return b + "more" }, "InvalidRequest", 400},
		{"cut off", "signed", func(b string) string { return b[:len(b)/2] }, "IncompleteBody", 400},
		{"too much", "unsigned with trailer", func(b string) string { return "4\r\nmore\r\n" + b }, "IncompleteBody", 400},
		{"too little", "unsigned with trailer", func(b string) string { return b[strings.Index(b, "8\r\n"):] }, "IncompleteBody", 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, body := uploads(t, "some", " content")[row.variant](&s3Signer{})
			_, _, e := received(t, v, r, row.change(body))
			if e == nil || e.Code != row.code || e.Status != row.status {
				t.Errorf("refused with %+v, want %s", e, row.code)
			}
		})
	}
}

func TestEveryTrailerChecksumIsCompared(t *testing.T) {
	// Of "123456789", as every description of these algorithms gives them; base64.
	for name, sum := range map[string]string{
		"crc32":     "y/Q5Jg==",
		"crc32c":    "4waSgw==",
		"crc64nvme": "rosUhgp5mIg=",
		"sha1":      "98O8HYCOBHMq32eZZczDTKeuNEE=",
		"sha256":    "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
	} {
		for _, right := range []bool{true, false} {
			s := &s3Signer{}
			r := put(t, s, unsignedTrailerSteam, "X-Amz-Trailer", "X-Amz-Checksum-"+name)
			b := s.chunks(false, "12345", "6789")
			if !right {
				sum = strings.ToLower(sum)
			}
			s.trailer(b, false, "x-amz-checksum-"+name+":"+sum)
			_, _, e := received(t, s3Verifier(), r, b.String())
			if right && e != nil || !right && (e == nil || e.Code != "BadDigest") {
				t.Errorf("%s, right=%t: %v", name, right, e)
			}
		}
	}
}

func TestStrictModeTakesSignedChunksOnly(t *testing.T) {
	v := sign.New(sign.Config{Keys: pairOf(s3ID, s3Secret), S3Strict: true})
	for name, make := range uploads(t, "content") {
		r, body := make(&s3Signer{})
		text, _, e := received(t, v, r, body)
		if name == "signed" {
			if e != nil || text != "content" {
				t.Errorf("%s: %q, %v", name, text, e)
			}
			continue
		}
		if e == nil || e.Code != "InvalidArgument" || e.EC != "0017-00000804" || e.Details["ArgumentName"] != "x-amz-content-sha256" {
			t.Errorf("%s: refused with %+v", name, e)
		}
	}
}

func TestFramingWithoutAStreamingValueIsRefused(t *testing.T) {
	r := put(t, &s3Signer{}, "UNSIGNED-PAYLOAD", "Content-Encoding", "gzip, AWS-Chunked")
	if _, _, e := received(t, s3Verifier(), r, "0\r\n\r\n"); e == nil || e.EC != "0017-00000804" {
		t.Errorf("refused with %+v", e)
	}
}

func TestSignedChunksNeedASignedRequest(t *testing.T) {
	r := s3Request(t, "PUT", "/b/k", "")
	r.Header.Set("X-Amz-Content-Sha256", signedStream)
	if _, _, e := received(t, s3Verifier(), r, "0\r\n\r\n"); e == nil || e.Code != "InvalidArgument" {
		t.Errorf("refused with %+v", e)
	}
	r = s3Request(t, "PUT", "/b/k", "")
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("X-Amz-Content-Sha256", signedStream)
	signV2(r, "/b/k")
	if _, _, e := received(t, s3Verifier(), r, "0\r\n\r\n"); e == nil || e.Code != "InvalidArgument" {
		t.Errorf("refused with %+v", e)
	}
}

func TestDecodedLengthMustBeANumber(t *testing.T) {
	for _, length := range []string{"-1", "x", "99999999999999999999"} {
		r := put(t, &s3Signer{}, unsignedTrailerSteam, "X-Amz-Decoded-Content-Length", length)
		if _, _, e := received(t, s3Verifier(), r, "0\r\n\r\n"); e == nil || e.Code != "InvalidArgument" {
			t.Errorf("%s: refused with %+v", length, e)
		}
	}
}

// The loss of the connection is not the client's mistake and keeps its name.
func TestAFailingConnectionKeepsItsError(t *testing.T) {
	broken := errors.New("connection reset")
	for name, make := range uploads(t, "some", " content") {
		r, body := make(&s3Signer{})
		id := mustAccept(t, s3Verifier(), r, "b", "k")
		for _, i := range []int{0, 3, len(body) / 2} {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body[:i]), iotest.ErrReader(broken)))
			decoded, _, e := s3Verifier().Body(r, id)
			if e != nil {
				t.Fatal(e)
			}
			if _, err := io.Copy(io.Discard, decoded); !errors.Is(err, broken) {
				t.Errorf("%s, after %d bytes: %v", name, i, err)
			}
		}
	}
}

// What net/http makes of a body that is aws-chunked inside chunked.
func TestChunksInsideHTTPChunksAreDecoded(t *testing.T) {
	s := &s3Signer{now: time.Now()}
	r := s3Request(t, "PUT", "/b/k", "")
	r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	r.Header.Set("X-Amz-Decoded-Content-Length", "7")
	s.sign(r, unsignedTrailerSteam)
	b := s.chunks(false, "content")
	s.trailer(b, false, "x-amz-checksum-crc32:"+crc32Of("content"))

	lines := []string{"PUT /b/k HTTP/1.1", "Host: " + r.Host, "Transfer-Encoding: chunked"}
	for name := range r.Header {
		lines = append(lines, name+": "+r.Header.Get(name))
	}
	var framed bytes.Buffer
	for part := b.Bytes(); len(part) > 0; {
		n := min(11, len(part))
		framed.WriteString(strconv.FormatInt(int64(n), 16) + "\r\n" + string(part[:n]) + "\r\n")
		part = part[n:]
	}
	framed.WriteString("0\r\n\r\n")
	got := request(t, framed.String(), lines...)
	text, n, e := content(s3Verifier(), got, mustAccept(t, s3Verifier(), got, "b", "k"))
	if e != nil || text != "content" || n != 7 {
		t.Errorf("%q of %d, %v", text, n, e)
	}
}
