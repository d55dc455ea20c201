package ossemu

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

const maxPartNumber = 10_000

// encoding returns the encoding-type of the request, "" or "url".
func (q *request) encoding() (string, error) {
	switch e := q.query.get("encoding-type"); e {
	case "", "url":
		return e, nil
	default:
		return "", invalidArgument("encoding-type", e, "The encoding type must be url.")
	}
}

// encoder returns how names are written in an answer of that encoding.
func encoder(encoding string) func(string) string {
	if encoding == "url" {
		return urlEncode
	}
	return func(s string) string { return s }
}

// uploadRequest is a request about an upload in parts.
type uploadRequest struct{ *request }

func (q uploadRequest) partNumber() (int, error) {
	text := q.query.get("partNumber")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPartNumber {
		return 0, invalidArgument("partNumber", text, "Part number must be an integer between 1 and %d, inclusive.", maxPartNumber)
	}
	return n, nil
}

func (q uploadRequest) initiateMultipartUpload() (*reply, error) {
	encoding, err := q.encoding()
	if err != nil {
		return nil, err
	}
	forbid, err := q.forbidOverwrite()
	if err != nil {
		return nil, err
	}
	attrs, err := q.attributes()
	if err != nil {
		return nil, err
	}
	if err := q.mayCreate(forbid); err != nil {
		return nil, err
	}
	u, err := q.store.CreateUpload(q.bucket, q.key, attrs)
	if err != nil {
		return nil, err
	}
	encode := encoder(encoding)
	d := newDocument("InitiateMultipartUploadResult")
	d.optional("EncodingType", encoding)
	d.text("Bucket", q.bucket)
	d.text("Key", encode(q.key))
	d.text("UploadId", u.ID)
	return q.xml(d, "InitiateMultipartUploadResult"), nil
}

func (q uploadRequest) uploadPart() (*reply, error) {
	number, err := q.partNumber()
	if err != nil {
		return nil, err
	}
	id := q.query.get("uploadId")
	// Asked before the body is taken in as well, so that nobody sends it in vain.
	if _, err := q.store.Upload(q.bucket, q.key, id); err != nil {
		return nil, err
	}
	blob, err := q.write()
	if err != nil {
		return nil, err
	}
	sum, digest := blob.MD5, blob.Digest
	p, err := q.store.PutPart(q.bucket, q.key, id, number, blob)
	if err != nil {
		return nil, err
	}
	q.set(headerETag, `"`+p.ETag()+`"`)
	if digest {
		q.set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	q.set(headerCRC64, strconv.FormatUint(p.CRC64, 10))
	return ok(), nil
}

func (q uploadRequest) completeMultipartUpload() (*reply, error) {
	encoding, err := q.encoding()
	if err != nil {
		return nil, err
	}
	forbid, err := q.forbidOverwrite()
	if err != nil {
		return nil, err
	}
	id := q.query.get("uploadId")
	if _, err := q.store.Upload(q.bucket, q.key, id); err != nil {
		return nil, err
	}
	parts, all, err := q.readParts()
	if err != nil {
		return nil, err
	}
	acl, err := q.objectACL()
	if err != nil {
		return nil, err
	}
	o, err := q.store.Complete(q.bucket, q.key, id, parts, all,
		store.PutOptions{Attrs: store.Attributes{ACL: acl}, ForbidOverwrite: forbid})
	if err != nil {
		return nil, q.explainParts(err)
	}
	q.work.Parts = len(parts)
	q.stored(o)
	encode := encoder(encoding)
	d := newDocument("CompleteMultipartUploadResult")
	d.optional("EncodingType", encoding)
	d.text("Location", "http://"+q.hostID()+q.r.URL.EscapedPath())
	d.text("Bucket", q.bucket)
	d.text("Key", encode(q.key))
	d.etag(o.ETag())
	return q.xml(d, "CompleteMultipartUploadResult"), nil
}

// explainParts adds to a refusal which part it is about.
func (q uploadRequest) explainParts(err error) error {
	f := q.failure(err)
	if errors.Is(err, store.ErrInvalidPart) || errors.Is(err, store.ErrPartTooSmall) {
		return f.with("Detail", err.Error())
	}
	return f
}

// readParts reads which parts are to make the object; all means every one that
// there is.
func (q uploadRequest) readParts() (parts []store.CompletePart, all bool, err error) {
	b, err := q.document(maxDocument)
	if err != nil {
		return nil, false, err
	}
	switch v := q.header("Complete-All"); strings.ToLower(v) {
	case "":
	case "yes":
		if len(b) > 0 {
			return nil, false, errCompleteAllAndBody
		}
		return nil, true, nil
	default:
		return nil, false, invalidArgument("x-oss-complete-all", v, "The only value is yes.")
	}
	root, err := parseXML(b)
	if err != nil || root.name != "CompleteMultipartUpload" {
		return nil, false, errMalformedComplete
	}
	for _, c := range root.children {
		if c.name != "Part" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(c.value("PartNumber")))
		if err != nil || n < 1 || n > maxPartNumber {
			return nil, false, errMalformedComplete
		}
		parts = append(parts, store.CompletePart{Number: n, ETag: strings.TrimSpace(c.value("ETag"))})
	}
	if len(parts) == 0 && q.identity.S3 {
		return nil, false, errMalformedComplete // the service's own dialect makes an empty object
	}
	return parts, false, nil
}

func (q uploadRequest) abortMultipartUpload() (*reply, error) {
	if err := q.store.Abort(q.bucket, q.key, q.query.get("uploadId")); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent}, nil
}

func (q uploadRequest) listParts() (*reply, error) {
	encoding, err := q.encoding()
	if err != nil {
		return nil, err
	}
	limit, err := q.parameter("max-parts", 1000, 1, 1000)
	if err != nil {
		return nil, err
	}
	marker, err := q.parameter("part-number-marker", 0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	u, parts, more, err := q.store.Parts(q.bucket, q.key, q.query.get("uploadId"), marker, limit)
	if err != nil {
		return nil, err
	}
	q.work.Entries = len(parts)
	encode := encoder(encoding)
	d := newDocument("ListPartsResult")
	d.optional("EncodingType", encoding)
	d.text("Bucket", q.bucket)
	d.text("Key", encode(q.key))
	d.text("UploadId", u.ID)
	d.owner()
	d.text("StorageClass", q.showStorageClass(u.Attrs.StorageClass))
	d.int("PartNumberMarker", int64(marker))
	if n := len(parts); n > 0 {
		d.int("NextPartNumberMarker", int64(parts[n-1].Number))
	}
	d.int("MaxParts", int64(limit))
	d.bool("IsTruncated", more)
	for _, p := range parts {
		d.open("Part")
		d.int("PartNumber", int64(p.Number))
		d.time("LastModified", p.ModTime())
		d.etag(p.ETag())
		d.uint("HashCrc64ecma", p.CRC64)
		d.int("Size", p.Size)
		d.close("Part")
	}
	return q.xml(d, "ListPartsResult"), nil
}

func (q listRequest) listMultipartUploads() (*reply, error) {
	encoding, err := q.encoding()
	if err != nil {
		return nil, err
	}
	limit, err := q.parameter("max-uploads", 1000, 1, 1000)
	if err != nil {
		return nil, err
	}
	query := store.UploadQuery{
		Prefix: q.query.get("prefix"), Delimiter: q.query.get("delimiter"),
		KeyMarker: q.query.get("key-marker"), IDMarker: q.query.get("upload-id-marker"), Limit: limit,
	}
	page, err := q.store.Uploads(q.bucket, query)
	if err != nil {
		return nil, err
	}
	q.work.Entries = len(page.Uploads) + len(page.Prefixes)
	encode := encoder(encoding)
	d := newDocument("ListMultipartUploadsResult")
	d.optional("EncodingType", encoding)
	d.text("Bucket", q.bucket)
	d.text("KeyMarker", encode(query.KeyMarker))
	d.text("UploadIdMarker", query.IDMarker)
	if page.More {
		d.text("NextKeyMarker", encode(page.NextKey))
		d.text("NextUploadIdMarker", page.NextID)
	}
	d.text("Delimiter", encode(query.Delimiter))
	d.text("Prefix", encode(query.Prefix))
	d.int("MaxUploads", int64(limit))
	d.bool("IsTruncated", page.More)
	for _, u := range page.Uploads {
		d.open("Upload")
		d.text("Key", encode(u.Key))
		d.text("UploadId", u.ID)
		d.owner()
		d.text("StorageClass", q.showStorageClass(u.Attrs.StorageClass))
		d.time("Initiated", u.Initiated)
		d.close("Upload")
	}
	for _, p := range page.Prefixes {
		d.open("CommonPrefixes")
		d.text("Prefix", encode(p))
		d.close("CommonPrefixes")
	}
	return q.xml(d, "ListMultipartUploadsResult"), nil
}
