package oss

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// Head implements [Stater].
func (v *view) Head(ctx context.Context, key string) (Info, error) {
	if err := checkKey(opHead, key); err != nil {
		return Info{}, err
	}
	return v.head(ctx, v.retrying(opHead, key, 0))
}

// head asks for r.key under a call that may be about something else.
func (v *view) head(ctx context.Context, r *retrying) (Info, error) {
	for {
		resp, f := v.exchange(ctx, r, &request{op: opHead, method: http.MethodHead, key: r.key})
		if f == nil {
			var info Info
			var err error
			if info, err = parseInfo(r.key, resp.header); err == nil {
				return info, nil
			}
			f = v.client.failed(opHead, r.key, err, nil, resp.header)
		}
		if err := r.again(ctx, f); err != nil {
			return Info{}, err
		}
	}
}

// askHead sends a HEAD past the SDK: where the attributes of many names are asked for, its
// general path is most of what a HEAD costs.
func (c *Client) askHead(a *attempt, key string) (*sdk.Response, error) {
	req := c.reads.head(key, c.cfg.Credentials.Keys())
	answer, err := c.transport.RoundTrip(req.WithContext(a.ctx)) //nolint:bodyclose // whoever takes the response closes it
	if err != nil {
		return nil, err
	}
	resp := &sdk.Response{StatusCode: answer.StatusCode, Headers: answer.Header, Body: answer.Body}
	if answer.StatusCode/100 == 2 {
		return resp, nil
	}
	// The answer to a HEAD has no body: what is wrong stands in its header, if anywhere.
	text, err := base64.StdEncoding.DecodeString(answer.Header.Get("X-Oss-Err"))
	if err != nil {
		text = nil
	}
	return resp, serviceError(answer.StatusCode, answer.Header, text)
}

// parseInfo reads what the head of an answer says of an object.
func parseInfo(key string, h http.Header) (Info, error) {
	size, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || size < 0 {
		return Info{}, fmt.Errorf("%w: content length %q", errBadAnswer, oneline.Of(h.Get("Content-Length"), 40))
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return Info{}, fmt.Errorf("%w: last modified %q", errBadAnswer, oneline.Of(h.Get("Last-Modified"), 40))
	}
	info := Info{Object: NewObject(key, h.Get("ETag"), size, modified)}
	if info.ETag == "" {
		return Info{}, fmt.Errorf("%w: no etag", errBadAnswer)
	}
	info.CRC64, info.HasCRC64 = parseCRC64(h)
	info.Symlink = h.Get("X-Oss-Object-Type") == "Symlink"
	info.ContentType = h.Get("Content-Type")
	for name, values := range h {
		if short, ok := strings.CutPrefix(strings.ToLower(name), metaPrefix); ok && len(values) > 0 {
			if info.Meta == nil {
				info.Meta = make(map[string]string)
			}
			info.Meta[short] = values[0]
		}
	}
	return info, nil
}

const metaPrefix = "x-oss-meta-"

func parseCRC64(h http.Header) (uint64, bool) {
	text := h.Get("X-Oss-Hash-Crc64ecma")
	if text == "" {
		return 0, false
	}
	crc, err := strconv.ParseUint(text, 10, 64)
	return crc, err == nil
}

// SymlinkTarget implements [Stater].
func (v *view) SymlinkTarget(ctx context.Context, key string) (string, error) {
	if err := checkKey(opSymlink, key); err != nil {
		return "", err
	}
	r := v.retrying(opSymlink, key, 0)
	resp, err := v.do(ctx, r, &request{
		op: opSymlink, method: http.MethodGet, key: key, params: map[string]any{"symlink": nil},
	})
	if err != nil {
		return "", err
	}
	raw := resp.header.Get("X-Oss-Symlink-Target")
	if raw == "" {
		return "", v.client.failed(opSymlink, key, fmt.Errorf("%w: no symlink target", errBadAnswer), nil, resp.header)
	}
	target, err := url.QueryUnescape(raw)
	if err != nil {
		// Some clients store the target unescaped.
		return raw, nil //nolint:nilerr // a target that is not an escape is the target itself
	}
	return target, nil
}
