package oss

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// maxPage is the most keys that OSS puts on a page.
const maxPage = 1000

// List implements [Lister].
func (v *view) List(ctx context.Context, l ListRequest) (ListPage, error) {
	if l.MaxKeys < 0 || l.MaxKeys > maxPage {
		return ListPage{}, invalid(opList, l.Prefix, fmt.Sprintf("a page has 1 to %d keys, not %d", maxPage, l.MaxKeys))
	}
	if l.Delimiter != "" && l.Delimiter != "/" {
		return ListPage{}, invalid(opList, l.Prefix, fmt.Sprintf("the delimiter is %q, not a slash", l.Delimiter))
	}
	r := v.retrying(opList, l.Prefix, 0)
	for {
		page, f := v.listOnce(ctx, r, l)
		if f == nil {
			return page, nil
		}
		if err := r.again(ctx, f); err != nil {
			return ListPage{}, err
		}
	}
}

// listOnce asks for one page once.
func (v *view) listOnce(ctx context.Context, r *retrying, l ListRequest) (ListPage, *failure) {
	params := map[string]any{
		"list-type":     "2",
		"encoding-type": "url",
		"max-keys":      strconv.Itoa(maxPage),
	}
	if l.MaxKeys > 0 {
		params["max-keys"] = strconv.Itoa(l.MaxKeys)
	}
	for name, value := range map[string]string{"prefix": l.Prefix, "delimiter": l.Delimiter} {
		if value != "" {
			params[name] = value
		}
	}
	switch {
	case l.Token != "":
		params["continuation-token"] = l.Token
	case l.StartAfter != "":
		params["start-after"] = l.StartAfter
	}
	resp, f := v.exchange(ctx, r, &request{op: opList, method: http.MethodGet, params: params})
	if f != nil {
		f.key = l.Prefix
		return ListPage{}, f
	}
	page, err := parseListing(resp.body, &l)
	if err != nil {
		return ListPage{}, v.client.failed(opList, l.Prefix, err, nil, resp.header)
	}
	return page, nil
}

// listing is the XML of one page. The SDK's own type lacks the element that says
// whether names are encoded, and so decodes what need not be encoded.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []listedContent
	CommonPrefixes        []listedPrefix
}

type listedContent struct {
	Key          string
	LastModified string
	ETag         string
	Type         string
	Size         int64
}

type listedPrefix struct{ Prefix string }

// decodeListing reads the XML of a page.
func decodeListing(text []byte) (*listing, error) {
	if x, ok := scanListing(text); ok {
		return x, nil
	}
	// What follows holds many times the text: no page names more than was asked for.
	if n := bytes.Count(text, []byte("<Contents")) + bytes.Count(text, []byte("<CommonPrefixes")); n > maxPage {
		return nil, fmt.Errorf("%w: a page of more than %d names", errBadAnswer, maxPage)
	}
	x := &listing{}
	if err := xml.Unmarshal(text, x); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadAnswer, err)
	}
	return x, nil
}

// parseListing decodes a page and refuses one that cannot be right.
func parseListing(text []byte, l *ListRequest) (ListPage, error) {
	x, err := decodeListing(text)
	if err != nil {
		return ListPage{}, err
	}
	decode := keyDecoder(x.EncodingType)
	page := ListPage{}
	if len(x.Contents) > 0 {
		page.Objects = make([]ListedObject, 0, len(x.Contents))
	}
	for i := range x.Contents {
		c := &x.Contents[i]
		key, err := decode(c.Key)
		if err != nil {
			return ListPage{}, err
		}
		modified, err := time.Parse(time.RFC3339, c.LastModified)
		if err != nil || c.Size < 0 || key == "" || !strings.HasPrefix(key, l.Prefix) {
			return ListPage{}, fmt.Errorf("%w: listed %q, %d bytes, of %q", errBadAnswer, oneline.Of(key, 100), c.Size, oneline.Of(c.LastModified, 40))
		}
		page.Objects = append(page.Objects, ListedObject{
			Object:  NewObject(key, c.ETag, c.Size, modified),
			Symlink: c.Type == "Symlink",
		})
	}
	for _, p := range x.CommonPrefixes {
		prefix, err := decode(p.Prefix)
		if err != nil {
			return ListPage{}, err
		}
		if !strings.HasPrefix(prefix, l.Prefix) {
			return ListPage{}, fmt.Errorf("%w: listed prefix %q", errBadAnswer, oneline.Of(prefix, 100))
		}
		page.Prefixes = append(page.Prefixes, prefix)
	}
	if x.IsTruncated {
		if page.Next, err = decode(x.NextContinuationToken); err != nil {
			return ListPage{}, err
		}
		if page.Next == "" || page.Next == l.Token {
			return ListPage{}, fmt.Errorf("%w: a page that is not the last names no next one", errBadAnswer)
		}
	}
	return page, nil
}

// keyDecoder returns how names in an answer with this EncodingType are read.
func keyDecoder(encoding string) func(string) (string, error) {
	if encoding != "url" {
		return func(s string) (string, error) { return s, nil }
	}
	return func(s string) (string, error) {
		if !strings.ContainsAny(s, "%+") {
			return s, nil
		}
		key, err := url.QueryUnescape(s)
		if err != nil {
			return "", fmt.Errorf("%w: name %q", errBadAnswer, oneline.Of(s, 100))
		}
		return key, nil
	}
}
