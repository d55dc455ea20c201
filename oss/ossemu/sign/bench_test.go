package sign_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

func BenchmarkVerify(b *testing.B) {
	for _, vec := range vectors() {
		if strings.Contains(vec.name, "token") || strings.Contains(vec.name, "cloud box") || vec.key == "" {
			continue
		}
		b.Run("scheme="+strings.ReplaceAll(vec.name, " ", "_"), func(b *testing.B) {
			now, err := time.Parse(time.RFC3339, vec.now)
			if err != nil {
				b.Fatal(err)
			}
			v := sign.New(sign.Config{Keys: vec.keys, Now: func() time.Time { return now }})
			r := request(b, "", vec.lines...)
			b.ReportAllocs()
			for b.Loop() {
				if _, e := v.Verify(r, vec.bucket, vec.key); e != nil {
					b.Fatal(e)
				}
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	content := strings.Repeat("0123456789abcdef", 1<<16)
	pieces := []string{}
	for i := 0; i < len(content); i += 65536 {
		pieces = append(pieces, content[i:i+65536])
	}
	s := &s3Signer{now: time.Now()}
	signed := bodyRequest(b, s, signedStream)
	framed := s.chunks(true, pieces...).Bytes()
	for _, row := range []struct {
		name string
		r    *http.Request
		body []byte
	}{
		{"signed-chunks", signed, framed},
		{"hash", bodyRequest(b, s, sha([]byte(content))), []byte(content)},
	} {
		b.Run("payload="+row.name, func(b *testing.B) {
			v := sign.New(sign.Config{Keys: pairOf(s3ID, s3Secret)})
			id, e := v.Verify(row.r, "b", "k")
			if e != nil {
				b.Fatal(e)
			}
			buf := make([]byte, 256<<10)
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				row.r.Body = io.NopCloser(bytes.NewReader(row.body))
				body, _, e := v.Body(row.r, id)
				if e != nil {
					b.Fatal(e)
				}
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buf); err != nil || n != int64(len(content)) {
					b.Fatal(n, err)
				}
			}
		})
	}
}

func bodyRequest(b *testing.B, s *s3Signer, payload string) *http.Request {
	r := s3Request(b, "PUT", "/b/k", "")
	s.sign(r, payload)
	return r
}
