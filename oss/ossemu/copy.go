package ossemu

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// DefaultCopyLimit is the most that one copy request copies; the service's
// documentation says 1 GB.
const DefaultCopyLimit = 1 << 30

// copySource reads which object is copied. Clients encode it in several ways;
// form decoding is right for all of them, and the leading slash is optional.
func (q *request) copySource() (bucket, key string, err error) {
	raw := q.header("Copy-Source")
	source, _, _ := strings.Cut(raw, "?") // a version id; there are no versions
	if decoded, err := url.QueryUnescape(source); err == nil {
		source = decoded
	}
	bucket, key, found := strings.Cut(strings.TrimPrefix(source, "/"), "/")
	if !found || !validBucketName(bucket) || key == "" {
		return "", "", invalidArgument("x-oss-copy-source", raw, "The copy source must name a bucket and an object.")
	}
	return bucket, key, nil
}

// openSource opens the object that is copied, if it meets the conditions.
func (q *request) openSource() (*store.Object, *store.Content, error) {
	bucket, key, err := q.copySource()
	if err != nil {
		return nil, nil, err
	}
	o, content, err := q.store.Open(bucket, key)
	if err != nil {
		return nil, nil, err
	}
	if f := q.copyConditions().check(o); f != nil {
		content.Close()
		if f == errNotModified && q.identity.S3 {
			f = errPreconditionFailed
		}
		return nil, nil, f
	}
	return o, content, nil
}

func (q objectRequest) copyObject() (*reply, error) {
	forbid, err := q.forbidOverwrite()
	if err != nil {
		return nil, err
	}
	src, content, err := q.openSource()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if src.Size > q.copyLimit() {
		return nil, errCopyTooLarge
	}
	attrs, err := q.copyAttributes(src)
	if err != nil {
		return nil, err
	}
	opts := store.PutOptions{Attrs: attrs, ForbidOverwrite: forbid}
	var o *store.Object
	if src.Type == store.Symlink {
		o, err = q.store.PutSymlink(q.bucket, q.key, opts)
	} else {
		o, err = q.store.PutCopy(q.bucket, q.key, src, q.store.Share(src, content), opts)
	}
	if err != nil {
		return nil, err
	}
	q.work.Copied = o.Size
	q.stored(o)
	d := newDocument("CopyObjectResult")
	d.etag(o.ETag())
	d.time("LastModified", o.ModTime())
	return q.xml(d, "CopyObjectResult"), nil
}

func (s *Server) copyLimit() int64 {
	if s.cfg.CopyLimit > 0 {
		return s.cfg.CopyLimit
	}
	return DefaultCopyLimit
}

// copyAttributes are those of the copy: the source's, but for what the request
// replaces.
func (q objectRequest) copyAttributes(src *store.Object) (store.Attributes, error) {
	own, err := q.attributes()
	if err != nil {
		return own, err
	}
	replaceMeta, err := q.directive("Metadata-Directive")
	if err != nil {
		return own, err
	}
	replaceTags, err := q.directive("Tagging-Directive")
	if err != nil {
		return own, err
	}
	attrs := own
	if !replaceMeta {
		attrs = *src.Attrs
		attrs.ACL, attrs.Encryption = own.ACL, own.Encryption
		if q.header("Storage-Class") != "" {
			attrs.StorageClass = own.StorageClass
		}
	}
	attrs.Target = src.Attrs.Target
	attrs.Tags = src.Attrs.Tags
	if replaceTags {
		attrs.Tags = own.Tags
	}
	return attrs, nil
}

// directive says whether the request replaces what a copy would take over.
func (q objectRequest) directive(name string) (replace bool, err error) {
	switch v := q.header(name); strings.ToUpper(v) {
	case "", "COPY":
		return false, nil
	case "REPLACE":
		return true, nil
	default:
		return false, invalidArgument("x-oss-"+strings.ToLower(name), v, "The directive must be COPY or REPLACE.")
	}
}

func (q uploadRequest) uploadPartCopy() (*reply, error) {
	number, err := q.partNumber()
	if err != nil {
		return nil, err
	}
	id := q.query.get("uploadId")
	if _, err := q.store.Upload(q.bucket, q.key, id); err != nil {
		return nil, err
	}
	src, content, err := q.openSource()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if src.Type == store.Symlink {
		return nil, errInvalidTargetType
	}
	off, n := int64(0), src.Size
	if header := q.header("Copy-Source-Range"); header != "" {
		first, last, suffix, ok := parseRange(header)
		if !ok || suffix {
			return nil, invalidArgument("x-oss-copy-source-range", header, "The range must be bytes=first-last.")
		}
		if last == openEnd {
			last = src.Size - 1
		}
		if first >= src.Size || last >= src.Size {
			return nil, errInvalidRange.with("ActualObjectSize", strconv.FormatInt(src.Size, 10))
		}
		off, n = first, last-first+1
	}
	if n > maxObject {
		return nil, errEntityTooLarge
	}
	blob, err := q.store.Slice(src, content, off, n)
	if err != nil {
		return nil, err
	}
	p, err := q.store.PutPart(q.bucket, q.key, id, number, blob)
	if err != nil {
		return nil, err
	}
	q.work.Copied = n
	q.set(headerCRC64, strconv.FormatUint(p.CRC64, 10))
	d := newDocument("CopyPartResult")
	d.time("LastModified", p.ModTime())
	d.etag(p.ETag())
	return q.xml(d, "CopyPartResult"), nil
}

func (q objectRequest) putSymlink() (*reply, error) {
	forbid, err := q.forbidOverwrite()
	if err != nil {
		return nil, err
	}
	raw := q.header("Symlink-Target")
	if raw == "" {
		return nil, errMissingSymlinkTarget
	}
	attrs, err := q.attributes()
	if err != nil {
		return nil, err
	}
	attrs.Target = raw
	if decoded, err := url.QueryUnescape(raw); err == nil {
		attrs.Target = decoded
	}
	if len(attrs.Target) > maxKey {
		return nil, errInvalidObjectName.with("ObjectName", attrs.Target)
	}
	o, err := q.store.PutSymlink(q.bucket, q.key, store.PutOptions{Attrs: attrs, ForbidOverwrite: forbid})
	if err != nil {
		return nil, err
	}
	q.set(headerETag, `"`+o.ETag()+`"`)
	return &reply{status: http.StatusOK}, nil
}

func (q objectRequest) getSymlink() (*reply, error) {
	o, err := q.store.Object(q.bucket, q.key)
	if err != nil {
		return nil, err
	}
	if o.Type != store.Symlink {
		return nil, errNotSymlink
	}
	q.describeBriefly(o, o.Type)
	q.set("x-oss-symlink-target", urlEncode(o.Attrs.Target))
	for _, m := range o.Attrs.Meta {
		q.set(q.dialect()+"meta-"+m.Name, m.Value)
	}
	return ok(), nil
}
