package oss

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"time"

	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// copyResult is the XML that answers a copy of an object or of a part.
type copyResult struct {
	ETag         string
	LastModified string
}

// Copy implements [Writer].
func (v *view) Copy(ctx context.Context, key string, src Object, o PutOptions) (Info, error) {
	if err := checkKey(opCopy, key); err != nil {
		return Info{}, err
	}
	header, err := o.header(opCopy, key)
	if err != nil {
		return Info{}, err
	}
	if err := v.sourceHeader(opCopy, header, src); err != nil {
		return Info{}, err
	}
	if o.ContentType != "" || len(o.Meta) > 0 {
		header["X-Oss-Metadata-Directive"] = "REPLACE"
	}
	r := v.retrying(opCopy, key, src.Size)
	for {
		resp, f := v.exchange(ctx, r, &request{op: opCopy, method: http.MethodPut, key: key, header: header})
		switch {
		case f == nil:
			var info Info
			var err error
			if info, err = copied(key, src, resp); err == nil {
				return info, nil
			}
			f = v.client.failed(opCopy, key, err, nil, resp.header)
		case f.is(ErrExists) && r.ambiguous:
			return v.copiedBefore(ctx, r, src, f)
		case f.is(ErrNotFound):
			// The source does not hold the asked version, nor any.
			f.kind, f.outcome = ErrChanged, outcomeChanged
		}
		if err := r.again(ctx, f); err != nil {
			return Info{}, err
		}
	}
}

// sourceHeader names the source and pins its version.
func (v *view) sourceHeader(op operation, header map[string]string, src Object) error {
	if err := checkKey(op, src.Key); err != nil {
		return err
	}
	if src.ETag == "" {
		return invalid(op, src.Key, "the source has no etag, so its version cannot be asked for")
	}
	header["X-Oss-Copy-Source"] = "/" + v.client.cfg.Bucket + "/" + escapeKey(src.Key)
	header["X-Oss-Copy-Source-If-Match"] = `"` + normalETag(src.ETag) + `"`
	return nil
}

// copied reads the answer to a copy.
func copied(key string, src Object, resp *response) (Info, error) {
	var x copyResult
	if err := xml.Unmarshal(resp.body, &x); err != nil {
		return Info{}, fmt.Errorf("%w: %w", errBadAnswer, err)
	}
	modified, err := time.Parse(time.RFC3339, x.LastModified)
	if err != nil || normalETag(x.ETag) == "" {
		return Info{}, fmt.Errorf("%w: copied to etag %q of %q", errBadAnswer, oneline.Of(x.ETag, 80), oneline.Of(x.LastModified, 40))
	}
	info := Info{Object: NewObject(key, x.ETag, src.Size, modified)}
	info.CRC64, info.HasCRC64 = parseCRC64(resp.header)
	return info, nil
}

// copiedBefore decides whether the object that forbids overwriting is the copy
// that an earlier request of this call made: same length and same content.
func (v *view) copiedBefore(ctx context.Context, r *retrying, src Object, exists *failure) (Info, error) {
	info, err := v.head(ctx, r.as(opHead))
	if err != nil {
		return Info{}, fmt.Errorf("%w (looking whether it is ours: %w)", exists, err)
	}
	if info.Size == src.Size && info.ETag == normalETag(src.ETag) {
		return info, nil
	}
	source := r.as(opHead)
	source.key = src.Key
	original, err := v.head(ctx, source)
	if err == nil && original.ETag == normalETag(src.ETag) && info.Size == src.Size &&
		info.HasCRC64 && original.HasCRC64 && info.CRC64 == original.CRC64 {
		return info, nil
	}
	return Info{}, exists
}
