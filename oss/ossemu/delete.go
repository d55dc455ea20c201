package ossemu

import (
	"strings"
	"unicode/utf8"
)

const maxDeleteKeys = 1000

func (q objectRequest) deleteMultipleObjects() (*reply, error) {
	// The S3 dialect has other digests, which package sign has checked.
	if q.r.Header.Get("Content-Md5") == "" && !q.identity.S3 {
		return nil, errMissingArgument.with("ArgumentName", "Content-MD5")
	}
	encoding, err := q.encoding()
	if err != nil {
		return nil, err
	}
	b, err := q.document(maxDelete)
	if err != nil {
		return nil, err
	}
	keys, quiet, err := parseDelete(b)
	if err != nil {
		return nil, err
	}
	encode := encoder(encoding)
	d := newDocument("DeleteResult")
	d.optional("EncodingType", encoding)
	for _, key := range keys {
		if _, err := q.store.Delete(q.bucket, key); err != nil {
			return nil, err
		}
		// A key that was not there counts as deleted.
		if !quiet {
			d.open("Deleted")
			d.text("Key", encode(key))
			d.close("Deleted")
		}
	}
	return q.xml(d, "DeleteResult"), nil
}

func parseDelete(b []byte) (keys []string, quiet bool, err error) {
	root, err := parseXML(b)
	if err != nil || root.name != "Delete" {
		return nil, false, errMalformedXML
	}
	quiet = strings.EqualFold(strings.TrimSpace(root.value("Quiet")), "true")
	for _, c := range root.children {
		if c.name != "Object" {
			continue
		}
		key := c.value("Key")
		if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
			return nil, false, errMalformedXML
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxDeleteKeys {
		return nil, false, errMalformedXML
	}
	return keys, quiet, nil
}
