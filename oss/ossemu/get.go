package ossemu

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// httpDate is the form of dates in headers, always 29 characters.
func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// objectRequest is a request about one object, or for the deletion of many.
type objectRequest struct{ *request }

// open opens the object of the request, or what it points to if it is a
// symlink. The type is that of the object itself.
func (q objectRequest) open() (*store.Object, *store.Content, store.Type, error) {
	o, content, err := q.store.Open(q.bucket, q.key)
	if err != nil || o.Type != store.Symlink {
		if err != nil {
			return nil, nil, 0, err
		}
		return o, content, o.Type, nil
	}
	content.Close()
	target, content, err := q.store.Open(q.bucket, o.Attrs.Target)
	switch {
	case errors.Is(err, store.ErrNoKey):
		return nil, nil, 0, errSymlinkTargetNotExist.with("TargetKey", o.Attrs.Target)
	case err != nil:
		return nil, nil, 0, err
	case target.Type == store.Symlink:
		content.Close()
		return nil, nil, 0, errInvalidTargetType
	}
	return target, content, store.Symlink, nil
}

// getObject serves GetObject and HeadObject, which differ in the body only.
func (q objectRequest) getObject() (*reply, error) {
	o, content, shown, err := q.open()
	if err != nil {
		return nil, err
	}
	rep, err := q.serveObject(o, content, shown)
	if err != nil {
		content.Close()
		return nil, err
	}
	rep.close = content.Close
	return rep, nil
}

func (q objectRequest) serveObject(o *store.Object, content *store.Content, shown store.Type) (*reply, error) {
	if f := q.readConditions().check(o); f != nil {
		if f == errNotModified {
			q.describeBriefly(o, shown)
		}
		return nil, f
	}
	rep := &reply{body: content, length: o.Size}
	rangeHeader := q.r.Header.Get("Range")
	if q.r.Method == http.MethodHead {
		rangeHeader = ""
	}
	if rangeHeader != "" {
		off, n, verdict := resolveRange(rangeHeader, o.Size, q.rangeRules())
		switch verdict {
		case rangeUnsatisfiable:
			f := *errInvalidRange
			f.elements = []string{"ActualObjectSize", strconv.FormatInt(o.Size, 10), "RangeRequested", rangeHeader}
			return nil, &f
		case rangePartial:
			rep.status, rep.off, rep.length = http.StatusPartialContent, off, n
			q.set("Content-Range", contentRange(off, n, o.Size))
		}
	}
	q.describe(o, shown)
	if sum, known := o.MD5(); known && rep.status != http.StatusPartialContent {
		q.set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	q.overrideHeaders()
	rep.compress = q.compresses(o, rangeHeader)
	return rep, nil
}

func contentRange(off, n, size int64) string {
	b := make([]byte, 0, 64)
	b = append(b, "bytes "...)
	b = strconv.AppendInt(b, off, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, off+n-1, 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, size, 10)
	return string(b)
}

func (q objectRequest) rangeRules() rangeRules {
	switch {
	case q.identity.S3:
		return rangeRFC
	case strings.EqualFold(q.r.Header.Get("X-Oss-Range-Behavior"), "standard"):
		return rangeStandard
	}
	return rangeLenient
}

// overrideHeaders lets query parameters replace headers of the answer.
func (q objectRequest) overrideHeaders() {
	for _, p := range q.query {
		switch p.name {
		case "response-content-type":
			q.set("Content-Type", p.value)
		case "response-content-language":
			q.set("Content-Language", p.value)
		case "response-expires":
			q.set("Expires", p.value)
		case "response-cache-control":
			q.set("Cache-Control", p.value)
		case "response-content-disposition":
			q.set("Content-Disposition", p.value)
		case "response-content-encoding":
			q.set("Content-Encoding", p.value)
		}
	}
}

// getObjectMeta tells the least about an object. Of a symlink it tells about the
// link itself.
func (q objectRequest) getObjectMeta() (*reply, error) {
	o, err := q.store.Object(q.bucket, q.key)
	if err != nil {
		return nil, err
	}
	if f := q.readConditions().check(o); f != nil {
		return nil, f
	}
	q.describeBriefly(o, o.Type)
	if q.r.Method == http.MethodHead {
		return &reply{length: o.Size}, nil
	}
	return ok(), nil
}

func (q objectRequest) deleteObject() (*reply, error) {
	if _, err := q.store.Delete(q.bucket, q.key); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent}, nil
}
