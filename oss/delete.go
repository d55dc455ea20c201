package oss

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is demanded of this request
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"
)

// maxDelete is the most keys of one request, by OSS's limits.
const maxDelete = 1000

// Delete implements [Writer].
func (v *view) Delete(ctx context.Context, keys ...string) error {
	var many []string
	for _, key := range keys {
		if err := checkKey(opDelete, key); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if len(keys) > 1 && inXML(key) {
			many = append(many, key)
			continue
		}
		if err := v.deleteOne(ctx, key); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(many, maxDelete) {
		if err := v.deleteMany(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// inXML says whether XML 1.0 can hold key. One that it cannot would be changed
// on its way, and the request would delete another object.
func inXML(key string) bool {
	for i := 0; i < len(key); {
		r, n := utf8.DecodeRuneInString(key[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
		i += n
	}
	return true
}

func (v *view) deleteOne(ctx context.Context, key string) error {
	_, err := v.do(ctx, v.retrying(opDelete, key, 0), &request{op: opDelete, method: http.MethodDelete, key: key})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// deleteRequest and deleteResult are the XML of a deletion of many keys.
type deleteRequest struct {
	XMLName xml.Name `xml:"Delete"`
	Quiet   bool
	Object  []deleteKey
}

type deleteKey struct{ Key string }

type deleteResult struct {
	XMLName      xml.Name `xml:"DeleteResult"`
	EncodingType string
	Deleted      []deleteKey
}

// deleteMany deletes keys and makes sure that the server names each of them.
func (v *view) deleteMany(ctx context.Context, keys []string) error {
	r := v.retrying(opDeleteMany, "", 0)
	left := keys
	for {
		rest, f := v.deleteChunk(ctx, r, left)
		if f == nil && len(rest) == 0 {
			return nil
		}
		if f == nil {
			if len(rest) < len(left) {
				r.progressed()
			}
			left = rest
			f = v.client.failed(opDeleteMany, rest[0], fmt.Errorf("%w: %d keys were not deleted", errBadAnswer, len(rest)), nil, nil)
		}
		if err := r.again(ctx, f); err != nil {
			return err
		}
	}
}

// deleteChunk sends one request and returns the keys that the answer leaves out.
func (v *view) deleteChunk(ctx context.Context, r *retrying, keys []string) ([]string, *failure) {
	x := deleteRequest{Object: make([]deleteKey, len(keys))}
	for i, key := range keys {
		x.Object[i].Key = key
	}
	text, err := xml.Marshal(x)
	if err != nil {
		return nil, invalid(opDeleteMany, keys[0], err.Error())
	}
	sum := md5.Sum(text)
	resp, f := v.exchange(ctx, r, &request{
		op: opDeleteMany, method: http.MethodPost,
		params: map[string]any{"delete": nil, "encoding-type": "url"},
		header: map[string]string{"Content-MD5": base64.StdEncoding.EncodeToString(sum[:])},
		body:   bytes.NewReader(text),
	})
	if f != nil {
		return nil, f
	}
	var result deleteResult
	if err := xml.Unmarshal(resp.body, &result); err != nil {
		return nil, v.client.failed(opDeleteMany, keys[0], fmt.Errorf("%w: %w", errBadAnswer, err), nil, resp.header)
	}
	decode := keyDecoder(result.EncodingType)
	deleted := make(map[string]bool, len(result.Deleted))
	for _, d := range result.Deleted {
		key, err := decode(d.Key)
		if err != nil {
			return nil, v.client.failed(opDeleteMany, keys[0], err, nil, resp.header)
		}
		deleted[key] = true
	}
	var rest []string
	for _, key := range keys {
		if !deleted[key] {
			rest = append(rest, key)
		}
	}
	return rest, nil
}
