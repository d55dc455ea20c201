package ossemu

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// spoiledRequest is a request that meets a fault.
type spoiledRequest struct {
	*request
	fault *armedFault
}

// sufferBefore lets a fault act before the operation. It reports whether the
// request has come to its end.
func (q spoiledRequest) sufferBefore() bool {
	f := q.fault
	switch f.Kind {
	case FaultError:
		q.drain()
		q.refuse(f.failure())
		return true
	case FaultReset:
		q.reset(true)
		return true
	case FaultSlowFirstByte:
		return shape.Sleep(q.r.Context(), time.Now().Add(f.Delay)) != nil
	}
	return false
}

// spoilHeaders makes a header say what is not so.
func (q spoiledRequest) spoilHeaders() {
	name, wrong := headerETag, wrongTag
	switch q.fault.Kind {
	case FaultWrongCRC:
		name, wrong = headerCRC64, wrongNumber
	case FaultWrongETag:
	default:
		return
	}
	if v := q.w.Header()[name]; len(v) == 1 {
		q.set(name, wrong(v[0]))
	}
}

// wrongNumber returns another decimal number of the same length.
func wrongNumber(s string) string {
	b := []byte(s)
	last := &b[len(b)-1]
	*last = '0' + (*last-'0'+1)%10
	return string(b)
}

// wrongTag returns another quoted tag of the same length.
func wrongTag(s string) string {
	b := []byte(s)
	if b[1] == '0' {
		b[1] = '1'
	} else {
		b[1] = '0'
	}
	return string(b)
}

// spoilsBody reports whether the fault acts while the body is sent.
func (a *armedFault) spoilsBody() bool {
	switch a.Kind {
	case FaultResetBody, FaultTruncate, FaultStall, FaultCorrupt:
		return true
	default:
		return false
	}
}

// sendBody sends the body as the fault will have it. The headers have been
// sent as for a whole one.
func (q spoiledRequest) sendBody(rep *reply) {
	f := q.fault
	flow := q.trip.Download(q.limit)
	if f.Kind == FaultCorrupt {
		if rep.body != nil {
			_ = q.copy(&flipper{w: q.w}, rep.body, rep.off, rep.length, flow) // see send
		}
		return
	}
	first := rep.length / 2
	if f.Bytes > 0 {
		first = min(f.Bytes, rep.length)
	}
	if rep.body != nil && first > 0 {
		if err := q.copy(q.w, rep.body, rep.off, first, flow); err != nil {
			return
		}
	}
	switch f.Kind {
	case FaultStall:
		if rep.body == nil {
			_ = shape.Sleep(q.r.Context(), time.Now().Add(f.Delay)) // who is gone need not wait
			return
		}
		if fl, ok := q.w.(http.Flusher); ok {
			fl.Flush()
		}
		if shape.Sleep(q.r.Context(), time.Now().Add(f.Delay)) == nil {
			_ = q.copy(q.w, rep.body, rep.off+first, rep.length-first, flow) // see send
		}
	case FaultResetBody:
		q.reset(true)
	case FaultTruncate:
		q.reset(false)
	}
}

// reset breaks the connection: at once and with what is under way lost, or in an
// orderly way after what was sent.
func (q spoiledRequest) reset(hard bool) {
	q.count()
	if fl, ok := q.w.(http.Flusher); ok && q.status != 0 {
		fl.Flush()
	}
	h, ok := q.w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0) // without it the client sees an orderly end, which is a fault too
	}
	_ = conn.Close() // nothing more is wanted of it
}

// flipper flips one bit in every 4096 bytes, the first of them included.
type flipper struct {
	w   io.Writer
	pos int64
	buf []byte
}

const flipEvery = 4096

// Write implements io.Writer. The bytes belong to others, so a copy is flipped.
func (f *flipper) Write(p []byte) (int, error) {
	f.buf = append(f.buf[:0], p...)
	for i := (flipEvery - f.pos%flipEvery) % flipEvery; i < int64(len(p)); i += flipEvery {
		f.buf[i] ^= 0x10
	}
	n, err := f.w.Write(f.buf)
	f.pos += int64(n)
	return n, err
}

// compresses says whether the service would compress the answer on the fly.
func (q objectRequest) compresses(o *store.Object, rangeHeader string) bool {
	if !q.cfg.Gzip || q.r.Method != http.MethodGet || rangeHeader != "" || o.Size < 1024 || o.Attrs.ContentEncoding != "" {
		return false
	}
	if !strings.Contains(q.r.Header.Get("Accept-Encoding"), "gzip") {
		return false
	}
	contentType, _, _ := strings.Cut(o.Attrs.ContentType, ";")
	switch strings.TrimSpace(contentType) {
	case "text/plain", "text/css", "text/xml", "text/html", "text/cache-manifest", "application/javascript",
		"application/x-javascript", "application/json", "text/json", "application/rss+xml":
		return true
	}
	return false
}

func (q *request) sendCompressed(rep *reply) {
	if f, ok := q.w.(http.Flusher); ok {
		f.Flush() // else net/http gives a short answer a length after all
	}
	z := gzip.NewWriter(q.w)
	err := q.copy(z, rep.body, rep.off, rep.length, q.trip.Download(q.limit))
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // an unfinished chunked body must not look finished
	}
}
