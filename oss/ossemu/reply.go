package ossemu

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// body is what an answer sends. CopyTo may be called for consecutive pieces.
type body interface {
	CopyTo(w io.Writer, off, n int64) (int64, error)
}

// bytesBody is a body in memory.
type bytesBody []byte

// CopyTo implements body.
func (b bytesBody) CopyTo(w io.Writer, off, n int64) (int64, error) {
	k, err := w.Write(b[off : off+n])
	return int64(k), err
}

// reply is what an operation answers beside the headers, which it sets itself.
type reply struct {
	// status 0 means 200.
	status int
	// body is sent from offset off, length bytes. A nil body with a length is that
	// of a HEAD.
	body        body
	off, length int64
	// compress sends the body through gzip, without its length.
	compress bool
	// close gives up what the body holds.
	close func()
}

// ok is the answer without a body.
func ok() *reply { return &reply{} }

// xml answers with a document.
func (q *request) xml(d *document, root string) *reply {
	d.close(root)
	q.set("Content-Type", "application/xml")
	return &reply{body: bytesBody(d.b), length: int64(len(d.b))}
}

// begin sends status and headers.
func (q *request) begin(status int) {
	h := q.w.Header()
	h["Server"] = serverName
	if q.identity.S3 {
		h["x-amz-request-id"] = q.values.of(q.id)
	} else {
		h["x-oss-request-id"] = q.values.of(q.id)
	}
	h["x-oss-server-time"] = q.values.of(strconv.FormatInt(time.Since(q.began).Milliseconds(), 10))
	q.status = status
	q.count()
	q.w.WriteHeader(status)
}

// count counts the request, once. It comes before the answer: whoever has that
// finds the request counted.
func (q *request) count() {
	if !q.counted {
		q.counted = true
		q.counters.answered(q.op, q.status, q.bytesIn)
	}
}

// Headers are written as the service writes them, which is not the form that
// net/http would give them; its map is accessed with these spellings only.
const (
	headerETag  = "ETag"
	headerCRC64 = "x-oss-hash-crc64ecma"
)

var serverName = []string{"AliyunOSS"}

// send sends an answer, spoiled by a fault if there is one. An error is of no
// use to anybody: the client is gone, or will see that the body is short.
func (q *request) send(rep *reply, f *armedFault) {
	if rep.close != nil {
		defer rep.close()
	}
	status := rep.status
	if status == 0 {
		status = http.StatusOK
	}
	h := q.w.Header()
	if status == http.StatusNoContent {
		q.begin(status)
		return
	}
	if rep.compress {
		h["Content-Encoding"] = []string{"gzip"}
		delete(h, headerETag)
	} else {
		h["Content-Length"] = q.values.of(strconv.FormatInt(rep.length, 10))
	}
	if q.r.Method == http.MethodHead || rep.body == nil {
		rep.body, rep.length = nil, 0
	}
	q.begin(status)
	switch {
	case f != nil && f.spoilsBody():
		spoiledRequest{q, f}.sendBody(rep)
	case rep.body == nil:
	case rep.compress:
		q.sendCompressed(rep)
	default:
		_ = q.copy(q.w, rep.body, rep.off, rep.length, q.trip.Download(q.limit)) // see above
	}
}

// flushLimit is the size from which headers are sent ahead, so that the body
// can go out by sendfile. Below it one packet for both is cheaper.
const flushLimit = 64 << 10

// copy sends n bytes of a body, at the flow's pace.
func (q *request) copy(w io.Writer, b body, off, n int64, flow *shape.Flow) error {
	if n > flushLimit {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	for n > 0 {
		m := n
		if flow != nil {
			m = min(n, flow.Slice())
			if err := flow.Wait(q.r.Context(), m); err != nil {
				return err
			}
		}
		k, err := b.CopyTo(w, off, m)
		q.bytesOut += k
		if err != nil {
			return err
		}
		off, n = off+m, n-m
	}
	return nil
}
