package ossemu

import (
	"crypto/md5"
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

func md5Of(b []byte) [16]byte { return md5.Sum(b) }

// checkMD5 compares what was received with the digest that the client sent, if
// it sent one.
func (q *request) checkMD5(sum [16]byte) error {
	want := q.r.Header.Get("Content-Md5")
	if want == "" || want == base64.StdEncoding.EncodeToString(sum[:]) {
		return nil
	}
	return errInvalidDigest.with("Content-MD5", want)
}

func (q objectRequest) putObject() (*reply, error) {
	if q.r.Header.Get("If-Modified-Since") != "" {
		return nil, errNotImplemented.with("Header", "If-Modified-Since")
	}
	attrs, err := q.attributes()
	if err != nil {
		return nil, err
	}
	forbid, err := q.forbidOverwrite()
	if err != nil {
		return nil, err
	}
	// Asked before the body is taken in as well, so that nobody sends it in vain.
	if err := q.mayCreate(forbid); err != nil {
		return nil, err
	}
	blob, err := q.write()
	if err != nil {
		return nil, err
	}
	sum, digest := blob.MD5, blob.Digest
	o, err := q.store.Put(q.bucket, q.key, blob, store.PutOptions{Attrs: attrs, ForbidOverwrite: forbid})
	if err != nil {
		return nil, err
	}
	q.stored(o)
	if digest {
		q.set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	return ok(), nil
}

// mayCreate checks what can be known before a body is read.
func (q *request) mayCreate(forbid bool) error {
	if _, err := q.store.Bucket(q.bucket); err != nil {
		return err
	}
	if !forbid {
		return nil
	}
	if _, err := q.store.Object(q.bucket, q.key); err == nil {
		return store.ErrExists
	}
	return nil
}

// stored sets the headers that answer a write.
func (q *request) stored(o *store.Object) {
	q.set(headerETag, `"`+o.ETag()+`"`)
	q.set(headerCRC64, strconv.FormatUint(o.CRC64, 10))
	if e := o.Attrs.Encryption; e != "" {
		q.set(q.dialect()+"server-side-encryption", e)
	}
}

func (q objectRequest) appendObject() (*reply, error) {
	text := q.query.get("position")
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 0 {
		return nil, invalidArgument("position", text, "The position must be a number of bytes.")
	}
	if position >= maxObject {
		return nil, errEntityTooLarge
	}
	attrs, err := q.attributes()
	if err != nil {
		return nil, err
	}
	opts := store.AppendOptions{Position: position, Limit: maxObject, Attrs: attrs, Verify: q.checkMD5}
	r, err := q.body(maxObject - position)
	if err != nil {
		return nil, err
	}
	o, err := q.store.Append(q.bucket, q.key, r, opts)
	if err != nil {
		return nil, q.appendFailure(err)
	}
	q.stored(o)
	q.set("x-oss-next-append-position", strconv.FormatInt(o.Size, 10))
	return ok(), nil
}

// appendFailure adds where the next append must begin.
func (q objectRequest) appendFailure(err error) error {
	f := q.failure(err)
	if f != errPositionNotEqual {
		return f
	}
	size := int64(0)
	if o, err := q.store.Object(q.bucket, q.key); err == nil {
		size = o.Size
	}
	g := *f
	g.headers = []string{"x-oss-next-append-position", strconv.FormatInt(size, 10)}
	return &g
}

// restoreObject thaws an archived object. Objects of the archive classes are
// readable here at all times, as if they had been restored already.
func (q objectRequest) restoreObject() (*reply, error) {
	o, err := q.store.Object(q.bucket, q.key)
	if err != nil {
		return nil, err
	}
	switch o.Attrs.StorageClass {
	case "Archive", "ColdArchive", "DeepColdArchive":
		return &reply{status: http.StatusOK}, nil
	}
	return nil, errRestoreNotSupported
}
