package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// What x-amz-content-sha256 says of an aws-chunked body.
const (
	streamingSigned          = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamingSignedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	streamingUnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Body returns the content of r, and its length or -1 when that is not known
// beforehand. The identity must come from Verify of the same request. A Read that
// finds the content to differ from what was signed returns an *Error instead of
// io.EOF. Close closes r.Body.
func (v *Verifier) Body(r *http.Request, id Identity) (io.ReadCloser, int64, *Error) {
	body := r.Body
	if body == nil {
		body = http.NoBody
	}
	if !id.S3 {
		return body, r.ContentLength, nil
	}
	switch {
	case strings.HasPrefix(id.payload, "STREAMING-"):
		return v.chunkedBody(r, body, id)
	case isChunkedEncoding(r.Header):
		return nil, 0, chunkedNotSupported(id.payload)
	case isHash(id.payload):
		return &hashedBody{body: body, hash: sha256.New(), want: id.payload, left: r.ContentLength}, r.ContentLength, nil
	case id.payload == "", id.payload == unsignedPayload:
		return body, r.ContentLength, nil
	}
	e := invalidArgument("x-amz-content-sha256", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a STREAMING value or a valid sha256 value.")
	e.Details["ArgumentValue"] = id.payload
	return nil, 0, e
}

// chunkedBody undoes the framing that the streaming values announce.
func (v *Verifier) chunkedBody(r *http.Request, body io.ReadCloser, id Identity) (io.ReadCloser, int64, *Error) {
	signed := id.payload == streamingSigned || id.payload == streamingSignedTrailer
	known := signed || id.payload == streamingUnsignedTrailer
	if !known || v.s3Strict && id.payload != streamingSigned || signed && id.chunks == nil {
		return nil, 0, chunkedNotSupported(id.payload)
	}
	length := int64(-1)
	if text := r.Header.Get("X-Amz-Decoded-Content-Length"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, 0, invalidArgument("x-amz-decoded-content-length", "x-amz-decoded-content-length must be a number of bytes.")
		}
		length = n
	}
	c := newChunkedBody(body, length)
	if signed {
		c.chain = id.chunks.start()
	}
	if id.payload != streamingSigned {
		c.trailer = newTrailer(r.Header.Values("X-Amz-Trailer"))
	}
	return c, length, nil
}

// isChunkedEncoding says whether the content is announced as aws-chunked.
func isChunkedEncoding(h http.Header) bool {
	for _, value := range h.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(coding), "aws-chunked") {
				return true
			}
		}
	}
	return false
}

func chunkedNotSupported(payload string) *Error {
	e := invalidArgument("x-amz-content-sha256", "aws-chunked encoding is not supported with the specified x-amz-content-sha256 value.")
	e.EC = "0017-00000804"
	e.Details["ArgumentValue"] = payload
	return e
}

// hashedBody compares the SHA-256 of a body with the one that was signed.
type hashedBody struct {
	body io.ReadCloser
	hash hash.Hash
	want string
	// left is what is still to come of a body of known length, else negative. The
	// comparison is made with the last byte, for some readers stop there and never
	// see io.EOF.
	left    int64
	settled bool
}

func (b *hashedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.hash.Write(p[:n])
	if b.left >= 0 {
		b.left -= int64(n)
	}
	if !b.settled && (err == io.EOF || b.left == 0) {
		b.settled = true
		if got := hex.EncodeToString(b.hash.Sum(nil)); got != b.want {
			b.body = failedBody{b.body, &Error{
				Status: http.StatusBadRequest, Code: "XAmzContentSHA256Mismatch",
				Message: "The provided 'x-amz-content-sha256' header does not match what was computed.",
				Details: map[string]string{
					"ClientComputedContentSHA256": b.want,
					"S3ComputedContentSHA256":     got,
				},
			}}
			_, err = b.body.Read(nil)
		}
	}
	return n, err
}

func (b *hashedBody) Close() error { return b.body.Close() }

// failedBody is a body that has been found wrong.
type failedBody struct {
	io.Closer
	err *Error
}

func (b failedBody) Read([]byte) (int, error) { return 0, b.err }
