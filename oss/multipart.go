package oss

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	maxParts    = 10000
	maxPartSize = 5 << 30
)

// checkUpload refuses what would not be a request about this upload.
func checkUpload(op operation, u MultipartUpload) error {
	if err := checkKey(op, u.Key); err != nil {
		return err
	}
	if u.ID == "" {
		return invalid(op, u.Key, "the upload has no id")
	}
	return nil
}

func checkPart(op operation, u MultipartUpload, number int, size int64) error {
	if err := checkUpload(op, u); err != nil {
		return err
	}
	if number < 1 || number > maxParts {
		return invalid(op, u.Key, fmt.Sprintf("part number %d is not within 1 to %d", number, maxParts))
	}
	if size < 0 || size > maxPartSize {
		return invalid(op, u.Key, fmt.Sprintf("part %d has %d bytes, more than %d", number, size, int64(maxPartSize)))
	}
	return nil
}

func partParams(u MultipartUpload, number int) map[string]any {
	return map[string]any{"partNumber": strconv.Itoa(number), "uploadId": u.ID}
}

// CreateUpload implements [MultipartUploader]. An answer that is lost leaves an
// upload behind that nobody knows of; ListUploads shows it.
func (v *view) CreateUpload(ctx context.Context, key string, o PutOptions) (MultipartUpload, error) {
	if err := checkKey(opCreateUpload, key); err != nil {
		return MultipartUpload{}, err
	}
	header, err := o.header(opCreateUpload, key)
	if err != nil {
		return MultipartUpload{}, err
	}
	r := v.retrying(opCreateUpload, key, 0)
	for {
		resp, f := v.exchange(ctx, r, &request{
			op: opCreateUpload, method: http.MethodPost, key: key, header: header,
			// Without the encoding, the answer repeats the key in XML that may not hold it.
			params: map[string]any{"uploads": nil, "encoding-type": "url"},
		})
		if f == nil {
			var x struct {
				XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
				UploadId string
			}
			err := xml.Unmarshal(resp.body, &x)
			if err == nil && x.UploadId != "" {
				return MultipartUpload{Key: key, ID: x.UploadId}, nil
			}
			f = v.client.failed(opCreateUpload, key, fmt.Errorf("%w: no upload id (%v)", errBadAnswer, err), nil, resp.header) //nolint:errorlint // told, not offered
		}
		if err := r.again(ctx, f); err != nil {
			return MultipartUpload{}, err
		}
	}
}

// UploadPart implements [MultipartUploader].
func (v *view) UploadPart(ctx context.Context, u MultipartUpload, number int, body Body) (Part, error) {
	size := body.Size()
	if err := checkPart(opUploadPart, u, number, size); err != nil {
		return Part{}, err
	}
	r := v.retrying(opUploadPart, u.Key, size)
	for {
		resp, f := v.exchange(ctx, r, &request{
			op: opUploadPart, method: http.MethodPut, key: u.Key, params: partParams(u, number), body: body,
		})
		if f == nil {
			etag := normalETag(resp.header.Get("ETag"))
			stored, ok := parseCRC64(resp.header)
			switch {
			case ok && stored != resp.sentCRC:
				f = r.corrupt(resp.sentCRC, stored)
			case etag == "":
				f = v.client.failed(opUploadPart, u.Key, fmt.Errorf("%w: no etag", errBadAnswer), nil, resp.header)
			default:
				return Part{Number: number, ETag: etag, Size: size, CRC64: resp.sentCRC}, nil
			}
		}
		if err := r.again(ctx, f); err != nil {
			return Part{}, err
		}
	}
}

// CopyPart implements [MultipartUploader].
func (v *view) CopyPart(ctx context.Context, u MultipartUpload, number int, src Object, offset, size int64) (Part, error) {
	if err := checkPart(opCopyPart, u, number, size); err != nil {
		return Part{}, err
	}
	if offset < 0 || size == 0 || offset > src.Size-size {
		return Part{}, invalid(opCopyPart, src.Key, fmt.Sprintf("bytes %d to %d are not within %d", offset, offset+size, src.Size))
	}
	header := map[string]string{"X-Oss-Copy-Source-Range": fmt.Sprintf("bytes=%d-%d", offset, offset+size-1)}
	if err := v.sourceHeader(opCopyPart, header, src); err != nil {
		return Part{}, err
	}
	r := v.retrying(opCopyPart, u.Key, size)
	for {
		resp, f := v.exchange(ctx, r, &request{
			op: opCopyPart, method: http.MethodPut, key: u.Key, params: partParams(u, number), header: header,
		})
		if f == nil {
			var x copyResult
			err := xml.Unmarshal(resp.body, &x)
			if err == nil && normalETag(x.ETag) != "" {
				return Part{Number: number, ETag: normalETag(x.ETag), Size: size}, nil
			}
			f = v.client.failed(opCopyPart, u.Key, fmt.Errorf("%w: no etag (%v)", errBadAnswer, err), nil, resp.header) //nolint:errorlint // told, not offered
		}
		if f.is(ErrNotFound) && f.code != "NoSuchUpload" {
			// The source does not hold the asked version, nor any.
			f.kind, f.outcome = ErrChanged, outcomeChanged
		}
		if err := r.again(ctx, f); err != nil {
			return Part{}, err
		}
	}
}

// AbortUpload implements [MultipartUploader].
func (v *view) AbortUpload(ctx context.Context, u MultipartUpload) error {
	if err := checkUpload(opAbortUpload, u); err != nil {
		return err
	}
	_, err := v.do(ctx, v.retrying(opAbortUpload, u.Key, 0), &request{
		op: opAbortUpload, method: http.MethodDelete, key: u.Key, params: map[string]any{"uploadId": u.ID},
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// completeRequest and completeResult are the XML of the end of an upload.
type completeRequest struct {
	XMLName xml.Name `xml:"CompleteMultipartUpload"`
	Part    []completePart
}

type completePart struct {
	PartNumber int
	ETag       string
}

type completeResult struct {
	XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	ETag    string
}

// CompleteUpload implements [MultipartUploader].
func (v *view) CompleteUpload(ctx context.Context, u MultipartUpload, parts []Part, o PutOptions) (Info, error) {
	if err := checkUpload(opCompleteUpload, u); err != nil {
		return Info{}, err
	}
	header, err := o.header(opCompleteUpload, u.Key)
	if err != nil {
		return Info{}, err
	}
	c := &completing{upload: u, parts: parts, retrying: v.retrying(opCompleteUpload, u.Key, 0)}
	if c.body, err = completeBody(u, parts); err != nil {
		return Info{}, err
	}
	// The rest of the options was fixed when the upload was created.
	c.header = map[string]string{}
	if forbid, ok := header[forbidOverwrite]; ok {
		c.header[forbidOverwrite] = forbid
	}
	return c.run(ctx)
}

func completeBody(u MultipartUpload, parts []Part) ([]byte, error) {
	if len(parts) == 0 {
		return nil, invalid(opCompleteUpload, u.Key, "there are no parts")
	}
	x := completeRequest{Part: make([]completePart, len(parts))}
	for i, p := range parts {
		if i > 0 && p.Number <= parts[i-1].Number {
			return nil, invalid(opCompleteUpload, u.Key, fmt.Sprintf("part %d comes after part %d", p.Number, parts[i-1].Number))
		}
		if err := checkPart(opCompleteUpload, u, p.Number, p.Size); err != nil {
			return nil, err
		}
		x.Part[i] = completePart{PartNumber: p.Number, ETag: `"` + normalETag(p.ETag) + `"`}
	}
	text, err := xml.Marshal(x)
	if err != nil {
		return nil, invalid(opCompleteUpload, u.Key, err.Error())
	}
	return text, nil
}

// completing is one CompleteUpload.
type completing struct {
	*retrying
	upload MultipartUpload
	parts  []Part
	header map[string]string
	body   []byte
	// size and crc are what the object will have; the CRC only if it is known of
	// every part.
	size   int64
	crc    uint64
	hasCRC bool
}

func (c *completing) run(ctx context.Context) (Info, error) {
	if err := c.expect(ctx); err != nil {
		return Info{}, err
	}
	for {
		resp, f := c.view.exchange(ctx, c.retrying, &request{
			op: opCompleteUpload, method: http.MethodPost, key: c.key,
			params: map[string]any{"uploadId": c.upload.ID, "encoding-type": "url"}, header: c.header, body: bytes.NewReader(c.body),
		})
		switch {
		case f == nil:
			if f = c.verify(resp); f == nil {
				return c.view.stored(ctx, c.retrying, resp.header, c.size)
			}
			if f.is(ErrCorrupted) {
				err := c.view.readBack(ctx, f, resp.header, c.size, c.crc)
				if err != nil {
					return Info{}, err
				}
				info, err := c.view.stored(ctx, c.retrying, resp.header, c.size)
				info.CRC64, info.HasCRC64 = c.crc, err == nil
				return info, err
			}
		case f.is(ErrNotFound) || f.is(ErrExists) && c.ambiguous:
			return c.finishedBefore(ctx, f)
		}
		if err := c.again(ctx, f); err != nil {
			return Info{}, err
		}
	}
}

// expect works out what the object will be. The CRCs of copied parts are asked
// of the server: without them a lost answer could not be told from a failure.
func (c *completing) expect(ctx context.Context) error {
	known := true
	for _, p := range c.parts {
		known = known && (p.CRC64 != 0 || p.Size == 0)
	}
	sums := make(map[int]Part)
	if !known {
		listed, err := c.view.listParts(ctx, c.as(opListParts), c.upload)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		for _, p := range listed {
			sums[p.Number] = p
		}
	}
	c.hasCRC = true
	for _, p := range c.parts {
		c.size += p.Size
		crc := p.CRC64
		if l := sums[p.Number]; crc == 0 && l.ETag == normalETag(p.ETag) {
			crc = l.CRC64
		}
		if crc == 0 && p.Size > 0 {
			c.hasCRC = false
		}
		c.crc = CombineCRC64(c.crc, crc, p.Size)
	}
	return nil
}

// verify compares the object with its parts.
func (c *completing) verify(resp *response) *failure {
	var x completeResult
	if err := xml.Unmarshal(resp.body, &x); err != nil {
		return c.view.client.failed(opCompleteUpload, c.key, fmt.Errorf("%w: %w", errBadAnswer, err), nil, resp.header)
	}
	if resp.header.Get("ETag") == "" {
		resp.header.Set("ETag", x.ETag)
	}
	if stored, ok := parseCRC64(resp.header); ok && c.hasCRC && stored != c.crc {
		// The parts were verified one by one; whatever this is, it is done and cannot
		// be sent again.
		return c.corrupt(c.crc, stored)
	}
	return nil
}

// finishedBefore decides, when the server does not know the upload any more or
// forbids to overwrite, whether the object is there because an earlier request
// finished it: one of this call whose answer was lost, or one before a restart.
func (c *completing) finishedBefore(ctx context.Context, gone *failure) (Info, error) {
	info, err := c.view.head(ctx, c.as(opHead))
	switch {
	case errors.Is(err, ErrNotFound):
		return Info{}, gone
	case err != nil:
		return Info{}, fmt.Errorf("%w (looking whether it is finished: %w)", gone, err)
	case info.Size != c.size:
		return Info{}, gone
	case c.hasCRC && info.HasCRC64:
		if info.CRC64 == c.crc {
			return info, nil
		}
		return Info{}, gone
	case c.ambiguous && strings.HasSuffix(info.ETag, "-"+strconv.Itoa(len(c.parts))):
		// Without checksums: the length, the number of parts, and that we asked for it.
		return info, nil
	default:
		return Info{}, gone
	}
}
