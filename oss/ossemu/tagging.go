package ossemu

import (
	"net/http"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

func (q objectRequest) putObjectTagging() (*reply, error) {
	tags, err := q.readTags()
	if err != nil {
		return nil, err
	}
	if err := q.store.SetAttributes(q.bucket, q.key, func(a *store.Attributes) { a.Tags = tags }); err != nil {
		return nil, err
	}
	return ok(), nil
}

func (q objectRequest) readTags() ([]store.Pair, error) {
	b, err := q.document(maxDocument)
	if err != nil {
		return nil, err
	}
	root, err := parseXML(b)
	if err != nil || root.name != "Tagging" || root.child("TagSet") == nil {
		return nil, errMalformedXML
	}
	var tags []store.Pair
	for _, t := range root.child("TagSet").children {
		if t.name != "Tag" || t.child("Key") == nil {
			return nil, errMalformedXML
		}
		tags = append(tags, store.Pair{Name: t.value("Key"), Value: t.value("Value")})
	}
	return tags, checkTags(tags)
}

func (q objectRequest) getObjectTagging() (*reply, error) {
	o, err := q.store.Object(q.bucket, q.key)
	if err != nil {
		return nil, err
	}
	d := newDocument("Tagging")
	d.open("TagSet")
	for _, t := range o.Attrs.Tags {
		d.open("Tag")
		d.text("Key", t.Name)
		d.text("Value", t.Value)
		d.close("Tag")
	}
	d.close("TagSet")
	return q.xml(d, "Tagging"), nil
}

func (q objectRequest) deleteObjectTagging() (*reply, error) {
	if err := q.store.SetAttributes(q.bucket, q.key, func(a *store.Attributes) { a.Tags = nil }); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent}, nil
}
