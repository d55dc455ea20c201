package bare

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // DeleteMultipleObjects wants a Content-MD5
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// CreateBucket makes the bucket; one that is there already is left as it is.
func (c *Client) CreateBucket(ctx context.Context) error {
	_, _, err := c.call(ctx, http.MethodPut, "", "", http.Header{}, nil, 0)
	return err
}

// Put stores p under key.
func (c *Client) Put(ctx context.Context, key string, p []byte) (Answer, error) {
	_, a, err := c.call(ctx, http.MethodPut, key, "", http.Header{}, bytes.NewReader(p), int64(len(p)))
	return a, err
}

// Upload is a multipart upload in progress.
type Upload struct {
	Key string
	ID  string
}

// CreateUpload begins a multipart upload to key.
func (c *Client) CreateUpload(ctx context.Context, key string) (Upload, error) {
	b, _, err := c.call(ctx, http.MethodPost, key, "uploads", http.Header{}, nil, 0)
	if err != nil {
		return Upload{}, err
	}
	var result struct{ UploadId string }
	if err := xml.Unmarshal(b, &result); err != nil {
		return Upload{}, fmt.Errorf("begin upload of %q: %w", key, err)
	}
	if result.UploadId == "" {
		return Upload{}, fmt.Errorf("begin upload of %q: %w", key, errors.New("no upload id came"))
	}
	return Upload{Key: key, ID: result.UploadId}, nil
}

// PutPart stores p as part number of u and returns the part's ETag.
func (c *Client) PutPart(ctx context.Context, u Upload, number int, p []byte) (string, error) {
	_, a, err := c.call(ctx, http.MethodPut, u.Key, partQuery(u, number), http.Header{}, bytes.NewReader(p), int64(len(p)))
	return a.ETag, err
}

// CopyPart makes part number of u of size bytes of another key of the bucket,
// inside the server, and returns the part's ETag.
func (c *Client) CopyPart(ctx context.Context, u Upload, number int, source string, offset, size int64) (string, error) {
	header := http.Header{}
	header.Set("X-Oss-Copy-Source", "/"+c.cfg.Bucket+"/"+url.QueryEscape(source))
	header.Set("X-Oss-Copy-Source-Range", fmt.Sprintf("bytes=%d-%d", offset, offset+size-1))
	b, _, err := c.call(ctx, http.MethodPut, u.Key, partQuery(u, number), header, nil, 0)
	if err != nil {
		return "", err
	}
	var result struct{ ETag string }
	if err := xml.Unmarshal(b, &result); err != nil {
		return "", fmt.Errorf("copy part %d of %q: %w", number, u.Key, err)
	}
	return result.ETag, nil
}

func partQuery(u Upload, number int) string {
	return fmt.Sprintf("partNumber=%d&uploadId=%s", number, u.ID)
}

// CompleteUpload makes the object of parts, whose ETags are given in order from
// part 1.
func (c *Client) CompleteUpload(ctx context.Context, u Upload, etags []string) error {
	var body strings.Builder
	body.WriteString("<CompleteMultipartUpload>")
	for i, etag := range etags {
		fmt.Fprintf(&body, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1, etag)
	}
	body.WriteString("</CompleteMultipartUpload>")
	_, _, err := c.call(ctx, http.MethodPost, u.Key, "uploadId="+u.ID, http.Header{}, strings.NewReader(body.String()), int64(body.Len()))
	return err
}

// AbortUpload forgets u and its parts.
func (c *Client) AbortUpload(ctx context.Context, u Upload) error {
	_, _, err := c.call(ctx, http.MethodDelete, u.Key, "uploadId="+u.ID, http.Header{}, nil, 0)
	return err
}

// Listed is one object of a listing.
type Listed struct {
	Key  string
	Size int64
	// LastModified is in whole seconds.
	LastModified time.Time
}

// List calls yield for every object whose key begins with prefix, in order.
func (c *Client) List(ctx context.Context, prefix string, yield func(Listed) error) error {
	token := ""
	for {
		query := "list-type=2&max-keys=1000&prefix=" + url.QueryEscape(prefix)
		if token != "" {
			query += "&continuation-token=" + url.QueryEscape(token)
		}
		b, _, err := c.call(ctx, http.MethodGet, "", query, http.Header{}, nil, 0)
		if err != nil {
			return err
		}
		var page struct {
			Contents              []Listed
			NextContinuationToken string
		}
		if err := xml.Unmarshal(b, &page); err != nil {
			return fmt.Errorf("list %q: %w", prefix, err)
		}
		for _, o := range page.Contents {
			if err := yield(o); err != nil {
				return err
			}
		}
		if token = page.NextContinuationToken; token == "" {
			return nil
		}
	}
}

// DeleteAll removes every object whose key begins with prefix.
func (c *Client) DeleteAll(ctx context.Context, prefix string) error {
	var keys []string
	err := c.List(ctx, prefix, func(o Listed) error {
		keys = append(keys, o.Key)
		return nil
	})
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(len(keys), 1000)
		if err := c.deleteKeys(ctx, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (c *Client) deleteKeys(ctx context.Context, keys []string) error {
	var body bytes.Buffer
	body.WriteString("<Delete><Quiet>true</Quiet>")
	for _, key := range keys {
		body.WriteString("<Object><Key>")
		if err := xml.EscapeText(&body, []byte(key)); err != nil {
			return fmt.Errorf("delete %q: %w", key, err)
		}
		body.WriteString("</Key></Object>")
	}
	body.WriteString("</Delete>")
	sum := md5.Sum(body.Bytes()) //nolint:gosec // not for secrecy
	header := http.Header{}
	header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	_, _, err := c.call(ctx, http.MethodPost, "", "delete", header, bytes.NewReader(body.Bytes()), int64(body.Len()))
	return err
}
