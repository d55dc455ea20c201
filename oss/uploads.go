package oss

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"

	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// ListParts implements [MultipartUploader].
func (v *view) ListParts(ctx context.Context, u MultipartUpload) ([]Part, error) {
	if err := checkUpload(opListParts, u); err != nil {
		return nil, err
	}
	return v.listParts(ctx, v.retrying(opListParts, u.Key, 0), u)
}

// partsPage is the XML of one page of parts. The SDK's own type lacks the
// checksum.
type partsPage struct {
	XMLName              xml.Name `xml:"ListPartsResult"`
	IsTruncated          bool
	NextPartNumberMarker int
	Part                 []struct {
		PartNumber    int
		ETag          string
		HashCrc64ecma uint64
		Size          int64
	}
}

func (v *view) listParts(ctx context.Context, r *retrying, u MultipartUpload) ([]Part, error) {
	var parts []Part
	marker := 0
	for {
		page, f := v.partsPage(ctx, r, u, marker)
		if f != nil {
			if err := r.again(ctx, f); err != nil {
				return nil, err
			}
			continue
		}
		r.progressed()
		for _, p := range page.Part {
			parts = append(parts, Part{Number: p.PartNumber, ETag: normalETag(p.ETag), Size: p.Size, CRC64: p.HashCrc64ecma})
		}
		if !page.IsTruncated {
			return parts, nil
		}
		marker = page.NextPartNumberMarker
	}
}

func (v *view) partsPage(ctx context.Context, r *retrying, u MultipartUpload, marker int) (*partsPage, *failure) {
	params := map[string]any{"uploadId": u.ID, "max-parts": "1000", "encoding-type": "url"}
	if marker > 0 {
		params["part-number-marker"] = fmt.Sprint(marker)
	}
	resp, f := v.exchange(ctx, r, &request{op: opListParts, method: http.MethodGet, key: u.Key, params: params})
	if f != nil {
		return nil, f
	}
	page := &partsPage{}
	err := xml.Unmarshal(resp.body, page)
	last := marker
	for _, p := range page.Part {
		if p.PartNumber <= last && err == nil {
			err = fmt.Errorf("part %d listed after part %d", p.PartNumber, last)
		}
		last = p.PartNumber
	}
	if err == nil && page.IsTruncated && page.NextPartNumberMarker <= marker {
		err = fmt.Errorf("part %d follows part %d", page.NextPartNumberMarker, marker)
	}
	if err != nil {
		return nil, v.client.failed(opListParts, u.Key, fmt.Errorf("%w: %w", errBadAnswer, err), nil, resp.header)
	}
	return page, nil
}

// uploadsPage is the XML of one page of uploads.
type uploadsPage struct {
	XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
	EncodingType       string
	IsTruncated        bool
	NextKeyMarker      string
	NextUploadIdMarker string
	Upload             []struct {
		Key      string
		UploadId string
	}
}

// ListUploads implements [MultipartUploader].
func (v *view) ListUploads(ctx context.Context, prefix string) ([]MultipartUpload, error) {
	r := v.retrying(opListUploads, prefix, 0)
	var uploads []MultipartUpload
	var after MultipartUpload
	for {
		page, next, f := v.uploadsPage(ctx, r, prefix, after)
		if f != nil {
			if err := r.again(ctx, f); err != nil {
				return nil, err
			}
			continue
		}
		r.progressed()
		uploads = append(uploads, page...)
		if next == nil {
			return uploads, nil
		}
		after = *next
	}
}

// uploadsPage asks for one page, and returns where the next one begins.
func (v *view) uploadsPage(ctx context.Context, r *retrying, prefix string, after MultipartUpload) ([]MultipartUpload, *MultipartUpload, *failure) {
	params := map[string]any{"uploads": nil, "encoding-type": "url", "max-uploads": "1000"}
	for name, value := range map[string]string{"prefix": prefix, "key-marker": after.Key, "upload-id-marker": after.ID} {
		if value != "" {
			params[name] = value
		}
	}
	resp, f := v.exchange(ctx, r, &request{op: opListUploads, method: http.MethodGet, params: params})
	if f != nil {
		f.key = prefix
		return nil, nil, f
	}
	bad := func(err error) ([]MultipartUpload, *MultipartUpload, *failure) {
		return nil, nil, v.client.failed(opListUploads, prefix, fmt.Errorf("%w: %w", errBadAnswer, err), nil, resp.header)
	}
	var x uploadsPage
	if err := xml.Unmarshal(resp.body, &x); err != nil {
		return bad(err)
	}
	decode := keyDecoder(x.EncodingType)
	uploads := make([]MultipartUpload, 0, len(x.Upload))
	for _, u := range x.Upload {
		key, err := decode(u.Key)
		if err != nil {
			return bad(err)
		}
		if !strings.HasPrefix(key, prefix) || u.UploadId == "" {
			return bad(fmt.Errorf("upload %q of %q", oneline.Of(u.UploadId, 80), oneline.Of(key, 100)))
		}
		uploads = append(uploads, MultipartUpload{Key: key, ID: u.UploadId})
	}
	if !x.IsTruncated {
		return uploads, nil, nil
	}
	key, err := decode(x.NextKeyMarker)
	if err != nil {
		return bad(err)
	}
	next := MultipartUpload{Key: key, ID: x.NextUploadIdMarker}
	if next == after || key == "" {
		return bad(fmt.Errorf("the page after %q is itself", oneline.Of(key, 100)))
	}
	return uploads, &next, nil
}
