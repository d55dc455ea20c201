package sign

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
)

const (
	// maxLine bounds a chunk's header and a trailer's line.
	maxLine = 4 << 10
	// maxChunk bounds one chunk: more than the largest object of one request.
	maxChunk = 8 << 30
	// maxTrailerLines bounds what may follow the last chunk.
	maxTrailerLines = 32
)

// chunkChain carries a SigV4 signature on from chunk to chunk. The string to
// sign of each names the signature before, the first one that of the header.
type chunkChain struct {
	key          []byte
	stamp, scope string
	previous     string
	hash         hash.Hash
}

// start returns a chain of its own for reading one body.
func (c *chunkChain) start() *chunkChain {
	s := *c
	s.hash = sha256.New()
	return &s
}

// The SHA-256 of nothing, which stands where a chunk could sign headers.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// check compares the signature of the chunk whose data went through c.hash.
func (c *chunkChain) check(signature string) *Error {
	return c.compare("AWS4-HMAC-SHA256-PAYLOAD", emptyHash+"\n"+c.sum(), signature)
}

// checkTrailer compares the signature of the trailer whose lines went through
// c.hash.
func (c *chunkChain) checkTrailer(signature string) *Error {
	return c.compare("AWS4-HMAC-SHA256-TRAILER", c.sum(), signature)
}

func (c *chunkChain) sum() string {
	sum := hex.EncodeToString(c.hash.Sum(nil))
	c.hash.Reset()
	return sum
}

func (c *chunkChain) compare(algorithm, hashes, signature string) *Error {
	toSign := []byte(strings.Join([]string{algorithm, c.stamp, c.scope, c.previous, hashes}, "\n"))
	want := signHex(c.key, toSign)
	if !equal(signature, want) {
		return &Error{
			Status: http.StatusForbidden, Code: "SignatureDoesNotMatch", EC: "0002-00000430",
			Message: "The request signature we calculated does not match the signature you provided. " +
				"Check your key and signing method.",
			Details: map[string]string{"SignatureProvided": signature, "StringToSign": string(toSign)},
		}
	}
	c.previous = want
	return nil
}

// chunkedBody reads an aws-chunked body:
//
//	size-in-hex [";chunk-signature=" signature] CRLF data CRLF
//
// again and again, the last chunk being of size 0, then trailer lines if there
// is a trailer, and an empty line. Bytes are handed out before the signature of
// their chunk has been seen; the error comes before io.EOF.
type chunkedBody struct {
	body io.Closer
	src  *bufio.Reader
	// chain is nil when chunks are not signed, trailer when there is none.
	chain   *chunkChain
	trailer *trailer

	// declared is the length that the client announced, or -1.
	declared, total int64
	// left is what remains of the present chunk.
	left      int64
	signature string
	// err ends the body, once set.
	err error
}

func newChunkedBody(body io.ReadCloser, declared int64) *chunkedBody {
	return &chunkedBody{body: body, src: bufio.NewReaderSize(body, 16<<10), declared: declared}
}

func (b *chunkedBody) Close() error { return b.body.Close() }

func (b *chunkedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for b.err == nil && b.left == 0 {
		b.err = b.nextChunk()
	}
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.src.Read(p)
	if b.chain != nil {
		b.chain.hash.Write(p[:n])
	}
	if b.trailer != nil {
		b.trailer.write(p[:n])
	}
	b.left -= int64(n)
	b.total += int64(n)
	switch {
	case err != nil:
		b.err = cut(err)
	case b.left == 0:
		b.err = b.endChunk()
	}
	return n, b.err
}

// nextChunk reads a chunk's header. It returns io.EOF behind the last chunk of a
// body that is right in all its parts.
func (b *chunkedBody) nextChunk() error {
	line, err := b.line()
	if err != nil {
		return err
	}
	size, signature, ok := parseChunkHeader(line)
	if !ok || b.chain != nil && len(signature) != 64 {
		return badChunk("The chunk header is malformed.")
	}
	if b.declared >= 0 && size > b.declared-b.total {
		return incompleteBody("The chunks hold more than x-amz-decoded-content-length says.")
	}
	b.left, b.signature = size, signature
	if size > 0 {
		return nil
	}
	if b.chain != nil {
		if e := b.chain.check(signature); e != nil {
			return e
		}
	}
	return b.finish()
}

// endChunk reads the line end behind a chunk's data and checks its signature.
func (b *chunkedBody) endChunk() error {
	line, err := b.line()
	if err != nil {
		return err
	}
	if line != "" {
		return badChunk("The chunk is longer than its header says.")
	}
	if b.chain != nil {
		if e := b.chain.check(b.signature); e != nil {
			return e
		}
	}
	return nil
}

// finish reads what follows the last chunk.
func (b *chunkedBody) finish() error {
	if b.declared >= 0 && b.total != b.declared {
		return incompleteBody("The chunks hold less than x-amz-decoded-content-length says.")
	}
	for range maxTrailerLines {
		// The empty line that ends it all may be missing.
		if _, err := b.src.Peek(1); err == io.EOF {
			return b.end()
		}
		line, err := b.line()
		if err != nil {
			return err
		}
		if line == "" {
			return b.end()
		}
		if b.trailer == nil {
			return badChunk("The last chunk is followed by more data.")
		}
		if e := b.trailer.add(line); e != nil {
			return e
		}
	}
	return malformedTrailer("The trailer has too many lines.")
}

// end wants nothing more to follow, and judges the trailer.
func (b *chunkedBody) end() error {
	if _, err := b.src.ReadByte(); err == nil {
		return badChunk("The last chunk is followed by more data.")
	} else if err != io.EOF {
		return err
	}
	if b.trailer != nil {
		if e := b.trailer.check(b.chain); e != nil {
			return e
		}
	}
	return io.EOF
}

// line reads up to a line feed and drops the line end.
func (b *chunkedBody) line() (string, error) {
	line, err := b.src.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine:
		return "", badChunk("A line of the chunked encoding is too long.")
	case err != nil:
		return "", cut(err)
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return string(line), nil
}

// parseChunkHeader reads "size[;chunk-signature=…]". Other extensions are
// passed over.
func parseChunkHeader(line string) (size int64, signature string, ok bool) {
	digits, extensions, _ := strings.Cut(line, ";")
	if digits == "" || len(digits) > 16 {
		return 0, "", false
	}
	for i := range len(digits) {
		d := unhex(digits[i])
		if d < 0 || size > maxChunk {
			return 0, "", false
		}
		size = size<<4 | int64(d)
	}
	if size > maxChunk {
		return 0, "", false
	}
	for extension := range strings.SplitSeq(extensions, ";") {
		if name, value, _ := strings.Cut(extension, "="); name == "chunk-signature" {
			signature = value
		}
	}
	return size, signature, true
}

// cut tells the end of the content from a failure of the connection: the first
// is the client's fault, the second is passed on.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return incompleteBody("The chunked encoding ends before its last chunk.")
	}
	return err
}

func incompleteBody(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "IncompleteBody", Message: message}
}

func badChunk(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "InvalidRequest", Message: message}
}
