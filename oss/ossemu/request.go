package ossemu

import (
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
	"github.com/pailfs/pailfs/oss/ossemu/sign"
	"github.com/pailfs/pailfs/oss/ossemu/store"
)

const (
	// maxObject is the most that one upload, one part or an appendable object may
	// have.
	maxObject = 5 << 30
	// maxDocument bounds the XML of a request.
	maxDocument = 4 << 20
	// maxDelete bounds the XML of a deletion of many objects.
	maxDelete = 2 << 20
	maxKey    = 1023
)

// request is one request on its way through the server. It belongs to the
// goroutine that serves it.
type request struct {
	*Server
	r *http.Request
	w http.ResponseWriter

	id    string
	began time.Time

	op          operation
	bucket, key string
	query       query
	identity    sign.Identity

	trip *shape.Trip
	// work is what adds to the latency, known when the operation is done.
	work shape.Work
	// limit is the bandwidth that the client asked to be held to.
	limit shape.Rate
	// staleAs is set when a listing must come from the past.
	stale *armedFault

	// received is when the last byte of the body had arrived.
	received          time.Time
	bytesIn, bytesOut int64
	// status is what was answered, 0 while nothing was.
	status int
	// counted says that the counters have the request.
	counted bool

	values headerValues
}

// header returns a request header by its OSS name without the x-oss- prefix. A
// request of the S3 dialect may carry it as x-amz-.
func (q *request) header(name string) string {
	if v := q.r.Header.Get("X-Oss-" + name); v != "" || !q.identity.S3 {
		return v
	}
	return q.r.Header.Get("X-Amz-" + name)
}

// set sets a header of the answer, spelled as given.
func (q *request) set(name, value string) {
	q.w.Header()[name] = q.values.of(value)
}

// headerValues holds the header values of an answer in one piece of memory.
type headerValues struct {
	texts [16]string
	n     int
}

// of makes a header value of one string.
func (h *headerValues) of(v string) []string {
	if h.n == len(h.texts) {
		return []string{v}
	}
	i := h.n
	h.n++
	h.texts[i] = v
	return h.texts[i : i+1 : i+1]
}

// dialect is the prefix of the protocol's own headers in the answer.
func (q *request) dialect() string {
	if q.identity.S3 {
		return "x-amz-"
	}
	return "x-oss-"
}

// parameter returns a query parameter that must be a number between low and
// high, or the default if it is absent.
func (q *request) parameter(name string, def, low, high int) (int, error) {
	text, ok := q.query.lookup(name)
	if !ok || text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, invalidArgument(name, text, "Argument %s must be an integer between %d and %d.", name, low, high)
	}
	return n, nil
}

// forbidOverwrite says whether the request must not replace an object.
func (q *request) forbidOverwrite() (bool, error) {
	switch v := q.header("Forbid-Overwrite"); strings.ToLower(v) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		f := invalidArgument("x-oss-forbid-overwrite", v, "The forbid-overwrite value must be true or false.")
		f.ec = "0017-00000279"
		return false, f
	}
}

// body opens the content of the request. Its errors are failures, but for
// io.EOF.
func (q *request) body(limit int64) (io.Reader, error) {
	content, length, refusal := q.verifier.Body(q.r, q.identity)
	if refusal != nil {
		return nil, fromSign(refusal)
	}
	if length > limit {
		return nil, errEntityTooLarge
	}
	return &bodyReader{q: q, r: content, flow: q.trip.Upload(q.limit)}, nil
}

// document reads a small body whole.
func (q *request) document(limit int64) ([]byte, error) {
	r, err := q.body(limit)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, errEntityTooLarge
	}
	if err := q.checkMD5(md5Of(b)); err != nil {
		return nil, err
	}
	return b, nil
}

// write stores the body of the request.
func (q *request) write() (*store.Blob, error) {
	r, err := q.body(maxObject)
	if err != nil {
		return nil, err
	}
	digest := !q.cfg.CheapETags || q.r.Header.Get("Content-Md5") != ""
	blob, err := q.store.Write(r, maxObject, digest)
	if err != nil {
		return nil, err
	}
	if err := q.checkMD5(blob.MD5); err != nil {
		blob.Release()
		return nil, err
	}
	return blob, nil
}

// bodyReader counts and paces what arrives, and turns a broken body into a
// failure, so that it is not taken for trouble of the server's own.
type bodyReader struct {
	q    *request
	r    io.Reader
	flow *shape.Flow
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.flow != nil {
		p = p[:min(int64(len(p)), b.flow.Slice())]
	}
	n, err := b.r.Read(p)
	b.q.bytesIn += int64(n)
	if b.flow != nil && n > 0 {
		if werr := b.flow.Wait(b.q.r.Context(), int64(n)); werr != nil {
			return n, errRequestTimeout
		}
	}
	var refusal *sign.Error
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		b.q.received = time.Now()
		return n, io.EOF
	case errors.As(err, &refusal):
		return n, fromSign(refusal)
	}
	return n, errIncompleteBody
}

// newRequestID returns 24 upper-case hexadecimal digits.
func (s *Server) newRequestID() string {
	n := s.requests.Add(1)
	var raw [12]byte
	copy(raw[:], s.idPrefix[:])
	for i := range 8 {
		raw[11-i] = byte(n >> (8 * i))
	}
	var text [24]byte
	hex.Encode(text[:], raw[:])
	return string(upperHex(text[:]))
}
