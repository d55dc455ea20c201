package ossemu

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

const maxListPage = 1000

// listing is what the two versions of a listing have in common.
type listing struct {
	store.ListQuery
	encoding string
	encode   func(string) string
}

// listRequest is a request for a page of names.
type listRequest struct{ *request }

func (q listRequest) listing() (listing, error) {
	l := listing{ListQuery: store.ListQuery{Prefix: q.query.get("prefix"), Delimiter: q.query.get("delimiter")}}
	var err error
	if l.encoding, err = q.encoding(); err != nil {
		return l, err
	}
	l.encode = encoder(l.encoding)
	// The service's default is a small page; S3's is a full one, and its clients may
	// ask for none and for more than there can be.
	if q.identity.S3 {
		l.Limit, err = q.parameter("max-keys", maxListPage, 0, 1<<31-1)
		l.Limit = min(l.Limit, maxListPage)
	} else {
		l.Limit, err = q.parameter("max-keys", 100, 1, maxListPage)
	}
	return l, err
}

// list runs a listing, from the past if a fault says so.
func (q listRequest) list(query store.ListQuery) (store.ListPage, error) {
	var page store.ListPage
	var err error
	if q.stale != nil {
		page, err = q.stale.list(q.store, q.bucket, query)
	} else {
		page, err = q.store.List(q.bucket, query)
	}
	q.work.Entries = len(page.Entries)
	return page, err
}

func (q listRequest) listObjects() (*reply, error) {
	if v := q.query.get("list-type"); v != "" && v != "1" {
		return nil, invalidArgument("list-type", v, "The list type must be 2 or absent.")
	}
	l, err := q.listing()
	if err != nil {
		return nil, err
	}
	l.After = q.query.get("marker")
	page, err := q.list(l.ListQuery)
	if err != nil {
		return nil, err
	}
	d := newDocument("ListBucketResult")
	d.text("Name", q.bucket)
	d.text("Prefix", l.encode(l.Prefix))
	d.text("Marker", l.encode(l.After))
	d.int("MaxKeys", int64(l.Limit))
	d.text("Delimiter", l.encode(l.Delimiter))
	d.optional("EncodingType", l.encoding)
	d.bool("IsTruncated", page.More)
	if page.More {
		d.text("NextMarker", l.encode(page.Entries[len(page.Entries)-1].Key))
	}
	q.entries(d, "Contents", page, l.encode, true)
	return q.xml(d, "ListBucketResult"), nil
}

func (q listRequest) listObjectsV2() (*reply, error) {
	l, err := q.listing()
	if err != nil {
		return nil, err
	}
	startAfter := q.query.get("start-after")
	l.After = startAfter
	token, continued := q.query.lookup("continuation-token")
	if continued && token != "" {
		after, err := parseToken(token)
		if err != nil {
			return nil, invalidArgument("continuation-token", token, "The continuation token provided is incorrect.")
		}
		l.After = after
	}
	page, err := q.list(l.ListQuery)
	if err != nil {
		return nil, err
	}
	d := newDocument("ListBucketResult")
	d.text("Name", q.bucket)
	d.text("Prefix", l.encode(l.Prefix))
	d.int("MaxKeys", int64(l.Limit))
	d.text("Delimiter", l.encode(l.Delimiter))
	d.optional("StartAfter", l.encode(startAfter))
	d.optional("EncodingType", l.encoding)
	d.bool("IsTruncated", page.More)
	d.int("KeyCount", int64(len(page.Entries)))
	if continued {
		d.text("ContinuationToken", l.encode(token))
	}
	if page.More {
		d.text("NextContinuationToken", l.encode(makeToken(page.Entries[len(page.Entries)-1].Key)))
	}
	q.entries(d, "Contents", page, l.encode, q.query.get("fetch-owner") == "true")
	return q.xml(d, "ListBucketResult"), nil
}

// listObjectVersions lists the only version that each key has, the null version
// of a bucket without versioning.
func (q listRequest) listObjectVersions() (*reply, error) {
	l, err := q.listing()
	if err != nil {
		return nil, err
	}
	l.After = q.query.get("key-marker")
	page, err := q.list(l.ListQuery)
	if err != nil {
		return nil, err
	}
	d := newDocument("ListVersionsResult")
	d.text("Name", q.bucket)
	d.text("Prefix", l.encode(l.Prefix))
	d.text("KeyMarker", l.encode(l.After))
	d.text("VersionIdMarker", q.query.get("version-id-marker"))
	d.int("MaxKeys", int64(l.Limit))
	d.text("Delimiter", l.encode(l.Delimiter))
	d.optional("EncodingType", l.encoding)
	d.bool("IsTruncated", page.More)
	if page.More {
		d.text("NextKeyMarker", l.encode(page.Entries[len(page.Entries)-1].Key))
		d.text("NextVersionIdMarker", "null")
	}
	q.entries(d, "Version", page, l.encode, true)
	return q.xml(d, "ListVersionsResult"), nil
}

// A continuation token is where the next page begins. Its letters are those
// that mean themselves in a URL: one client signs the escaped form.
const tokenVersion = "1"

var errToken = errors.New("not a continuation token")

func makeToken(after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenVersion + after))
}

func parseToken(token string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", err
	}
	after, ok := strings.CutPrefix(string(b), tokenVersion)
	if !ok {
		return "", errToken
	}
	return after, nil
}

// entries writes keys, each an element of that name, then common prefixes.
func (q listRequest) entries(d *document, name string, page store.ListPage, encode func(string) string, withOwner bool) {
	d.b = slices.Grow(d.b, 300*len(page.Entries))
	for _, e := range page.Entries {
		o := e.Object
		if o == nil {
			continue
		}
		d.open(name)
		d.text("Key", encode(e.Key))
		if name == "Version" {
			d.text("VersionId", "null")
			d.bool("IsLatest", true)
		}
		d.time("LastModified", o.ModTime())
		d.etag(o.ETag())
		d.text("Type", o.Type.String())
		d.int("Size", o.Size)
		d.text("StorageClass", q.showStorageClass(o.Attrs.StorageClass))
		if withOwner {
			d.owner()
		}
		d.close(name)
	}
	for _, e := range page.Entries {
		if e.Object == nil {
			d.open("CommonPrefixes")
			d.text("Prefix", encode(e.Key))
			d.close("CommonPrefixes")
		}
	}
}
