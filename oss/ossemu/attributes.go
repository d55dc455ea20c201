package ossemu

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

const (
	// maxMeta bounds the names and values of the user metadata together.
	maxMeta    = 8 << 10
	maxTags    = 10
	maxTagName = 128
	maxTagText = 256
)

// attributes reads what the headers of a request say about an object.
func (q *request) attributes() (store.Attributes, error) {
	h := q.r.Header
	a := store.Attributes{
		ContentType:        h.Get("Content-Type"),
		CacheControl:       h.Get("Cache-Control"),
		ContentDisposition: h.Get("Content-Disposition"),
		ContentEncoding:    storedEncoding(h.Get("Content-Encoding")),
		ContentLanguage:    h.Get("Content-Language"),
		Expires:            h.Get("Expires"),
	}
	if a.ContentType == "" {
		a.ContentType = "application/octet-stream"
	}
	switch e := q.header("Server-Side-Encryption"); e {
	case "", "AES256", "KMS", "SM4", "aws:kms":
		a.Encryption = e
	default:
		return a, errEncryption.with("ArgumentValue", e)
	}
	var err error
	if a.StorageClass, err = q.storageClass(); err != nil {
		return a, err
	}
	if a.ACL, err = q.objectACL(); err != nil {
		return a, err
	}
	if a.Meta, err = q.userMeta(); err != nil {
		return a, err
	}
	a.Tags, err = parseTagHeader(q.header("Tagging"))
	return a, err
}

// storedEncoding removes the framing that package sign has undone.
func storedEncoding(header string) string {
	if !strings.Contains(header, "aws-chunked") {
		return header
	}
	var kept []string
	for e := range strings.SplitSeq(header, ",") {
		if e = strings.TrimSpace(e); e != "aws-chunked" && e != "" {
			kept = append(kept, e)
		}
	}
	return strings.Join(kept, ",")
}

// userMeta collects the user metadata. The prefix has its final dash: there are
// other headers that begin with x-oss-meta.
func (q *request) userMeta() ([]store.Pair, error) {
	const ossPrefix, s3Prefix = "X-Oss-Meta-", "X-Amz-Meta-"
	var meta []store.Pair
	size := 0
	for name, values := range q.r.Header {
		rest, found := strings.CutPrefix(name, ossPrefix)
		if !found && q.identity.S3 {
			rest, found = strings.CutPrefix(name, s3Prefix)
		}
		if !found || rest == "" {
			continue
		}
		p := store.Pair{Name: strings.ToLower(rest), Value: strings.Join(values, ",")}
		size += len(p.Name) + len(p.Value)
		meta = append(meta, p)
	}
	if size > maxMeta {
		return nil, errMetadataTooLarge
	}
	slices.SortFunc(meta, func(a, b store.Pair) int { return strings.Compare(a.Name, b.Name) })
	return meta, nil
}

// storageClasses are the classes by their S3 names.
var storageClasses = []struct{ s3, oss string }{
	{"STANDARD", "Standard"},
	{"STANDARD_IA", "IA"},
	{"GLACIER", "Archive"},
	{"DEEP_ARCHIVE", "ColdArchive"},
	{"DEEP_COLD_ARCHIVE", "DeepColdArchive"},
}

const defaultStorageClass = "Standard"

func (q *request) storageClass() (string, error) {
	text := q.header("Storage-Class")
	if text == "" {
		b, err := q.store.Bucket(q.bucket)
		return b.StorageClass, err
	}
	for _, c := range storageClasses {
		if text == c.oss || (q.identity.S3 && text == c.s3) {
			return c.oss, nil
		}
	}
	return "", invalidArgument("x-oss-storage-class", text, "The storage class is invalid.")
}

// showStorageClass names a class in the dialect of the request.
func (q *request) showStorageClass(class string) string {
	if class == "" {
		class = defaultStorageClass
	}
	if q.identity.S3 {
		for _, c := range storageClasses {
			if c.oss == class {
				return c.s3
			}
		}
	}
	return class
}

// parseTagHeader reads k=v&k=v.
func parseTagHeader(header string) ([]store.Pair, error) {
	if header == "" {
		return nil, nil
	}
	var tags []store.Pair
	for field := range strings.SplitSeq(header, "&") {
		name, value, _ := strings.Cut(field, "=")
		n, err1 := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return nil, invalidTag(field)
		}
		tags = append(tags, store.Pair{Name: n, Value: v})
	}
	return tags, checkTags(tags)
}

func checkTags(tags []store.Pair) error {
	if len(tags) > maxTags {
		return invalidTag(strconv.Itoa(len(tags)) + " tags")
	}
	for i, t := range tags {
		if t.Name == "" || len(t.Name) > maxTagName || len(t.Value) > maxTagText || !tagText(t.Name) || !tagText(t.Value) {
			return invalidTag(t.Name)
		}
		for _, other := range tags[:i] {
			if other.Name == t.Name {
				return invalidTag(t.Name)
			}
		}
	}
	return nil
}

// tagText reports whether a tag may be written so.
func tagText(s string) bool {
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" +-=._:/", r) {
			return false
		}
	}
	return true
}

func invalidTag(what string) *failure {
	return &failure{400, "InvalidTag", "The tag is invalid: " + what, "0020-00000001", nil, nil}
}

// describe sets the headers that tell what an object is.
func (q *request) describe(o *store.Object, t store.Type) {
	q.describeBriefly(o, t)
	h := q.w.Header()
	h["Accept-Ranges"] = acceptRanges
	a := o.Attrs
	q.set("Content-Type", a.ContentType)
	for _, f := range [...]struct{ name, value string }{
		{"Cache-Control", a.CacheControl},
		{"Content-Disposition", a.ContentDisposition},
		{"Content-Encoding", a.ContentEncoding},
		{"Content-Language", a.ContentLanguage},
		{"Expires", a.Expires},
	} {
		if f.value != "" {
			q.set(f.name, f.value)
		}
	}
	dialect := q.dialect()
	if q.identity.S3 {
		q.set("x-amz-storage-class", q.showStorageClass(a.StorageClass))
	} else {
		q.set("x-oss-storage-class", q.showStorageClass(a.StorageClass))
	}
	if a.Encryption != "" {
		q.set(dialect+"server-side-encryption", a.Encryption)
	}
	if len(a.Tags) > 0 {
		q.set(dialect+"tagging-count", strconv.Itoa(len(a.Tags)))
	}
	for _, m := range a.Meta {
		q.set(dialect+"meta-"+m.Name, m.Value)
	}
	if o.Type == store.Appendable {
		q.set("x-oss-next-append-position", strconv.FormatInt(o.Size, 10))
	}
}

var acceptRanges = []string{"bytes"}

// describeBriefly sets the headers that every answer about an object has.
func (q *request) describeBriefly(o *store.Object, t store.Type) {
	q.set(headerETag, `"`+o.ETag()+`"`)
	q.set("Last-Modified", httpDate(o.ModTime()))
	q.set("x-oss-object-type", t.String())
	if t != store.Symlink || o.Type != store.Symlink {
		q.set(headerCRC64, strconv.FormatUint(o.CRC64, 10))
	}
}
