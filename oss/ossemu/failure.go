package ossemu

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// fromSign makes a refusal of package sign one of this package.
func fromSign(e *sign.Error) *failure {
	f := &failure{status: e.Status, code: e.Code, message: e.Message, ec: e.EC}
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		f.elements = append(f.elements, name, e.Details[name])
	}
	return f
}

// failureTable says how the store's errors are answered.
var failureTable = []struct {
	err     error
	failure *failure
}{
	{store.ErrNoBucket, errNoSuchBucket},
	{store.ErrNoKey, errNoSuchKey},
	{store.ErrExists, errFileAlreadyExists},
	{store.ErrNotEmpty, errBucketNotEmpty},
	{store.ErrNotAppendable, errObjectNotAppendable},
	{store.ErrPosition, errPositionNotEqual},
	{store.ErrTooLarge, errEntityTooLarge},
	{store.ErrNoUpload, errNoSuchUpload},
	{store.ErrInvalidPart, errInvalidPart},
	{store.ErrPartOrder, errInvalidPartOrder},
	{store.ErrPartTooSmall, errEntityTooSmall},
	{context.Canceled, errRequestTimeout},
	{context.DeadlineExceeded, errRequestTimeout},
}

// noUploadNumbers are the numbers of a missing upload that differ by operation.
var noUploadNumbers = map[operation]string{opUploadPart: "0042-00000104", opUploadPartCopy: "0042-00000311"}

// failure says how an error is answered. One that is not known is the server's
// own trouble and is logged.
func (q *request) failure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	for _, row := range failureTable {
		if errors.Is(err, row.err) {
			if ec, ok := noUploadNumbers[q.op]; ok && row.failure == errNoSuchUpload {
				f := *row.failure
				f.ec = ec
				return &f
			}
			return row.failure
		}
	}
	q.log.Error("serve request", "operation", q.op.String(), "bucket", q.bucket, "key", q.key, "request", q.id, "error", err)
	return errInternal
}

// refuse answers with a failure.
func (q *request) refuse(f *failure) {
	h := q.w.Header()
	if f.status == http.StatusNotModified {
		delete(h, "Content-Length")
		delete(h, "Content-Type")
		q.begin(f.status)
		return
	}
	clear(h)
	d := newDocument("Error")
	d.text("Code", f.code)
	d.text("Message", f.message)
	d.text("RequestId", q.id)
	d.text("HostId", q.hostID())
	switch {
	case f == errNoSuchBucket:
		d.text("BucketName", q.bucket)
	case f.status == http.StatusNotFound && q.key != "":
		d.text("Key", readable(q.key))
	}
	for i := 0; i+1 < len(f.elements); i += 2 {
		d.text(f.elements[i], readable(f.elements[i+1]))
	}
	if f.ec != "" {
		d.text("EC", f.ec)
		d.text("RecommendDoc", "https://api.aliyun.com/troubleshoot?q="+f.ec)
		q.set("x-oss-ec", f.ec)
	}
	d.close("Error")
	for i := 0; i+1 < len(f.headers); i += 2 {
		q.set(f.headers[i], f.headers[i+1])
	}
	q.set("Content-Type", "application/xml")
	if q.r.Method == http.MethodHead {
		// A HEAD has no body, so the document travels in a header.
		q.set("x-oss-err", base64.StdEncoding.EncodeToString(d.b))
		q.set("Content-Length", "0")
		q.begin(f.status)
		return
	}
	q.send(&reply{status: f.status, body: bytesBody(d.b), length: int64(len(d.b))}, nil)
}

// hostID is what the service calls the host of the request.
func (q *request) hostID() string {
	if host := q.r.Host; host != "" {
		return host
	}
	return "oss-" + q.region()
}
