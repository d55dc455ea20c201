package ossemu

import (
	"net/http"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// The access rights that a bucket or an object may have.
const (
	aclPrivate         = "private"
	aclPublicRead      = "public-read"
	aclPublicReadWrite = "public-read-write"
	aclDefault         = "default"
)

// owner is who owns everything here.
const owner = "1000000000000001"

func (d *document) owner() {
	d.open("Owner")
	d.text("ID", owner)
	d.text("DisplayName", owner)
	d.close("Owner")
}

// objectACL reads the rights that a new object is to have, "" for its bucket's.
func (q *request) objectACL() (string, error) {
	text := q.header("Object-Acl")
	if text == "" && q.identity.S3 {
		text = q.header("Acl")
	}
	return parseObjectACL(text)
}

func parseObjectACL(text string) (string, error) {
	switch text {
	case "", aclDefault, "bucket-owner-full-control", "bucket-owner-read", "authenticated-read":
		return "", nil
	case aclPrivate, aclPublicRead, aclPublicReadWrite:
		return text, nil
	}
	return "", invalidArgument("x-oss-object-acl", text, "no such object access control exists")
}

func parseBucketACL(text string) (string, error) {
	switch text {
	case "", aclDefault:
		return aclPrivate, nil
	case aclPrivate, aclPublicRead, aclPublicReadWrite:
		return text, nil
	}
	return "", invalidArgument("x-oss-acl", text, "no such bucket access control exists")
}

// accessPolicy answers what the rights are.
func (q *request) accessPolicy(acl string) *reply {
	d := newDocument("AccessControlPolicy")
	d.owner()
	d.open("AccessControlList")
	if q.identity.S3 {
		d.s3Grants(acl)
	} else {
		d.text("Grant", acl)
	}
	d.close("AccessControlList")
	return q.xml(d, "AccessControlPolicy")
}

// s3Grants says the same in the words of S3.
func (d *document) s3Grants(acl string) {
	d.open("Grant")
	d.b = append(d.b, `<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">`...)
	d.text("ID", owner)
	d.text("DisplayName", owner)
	d.close("Grantee")
	d.text("Permission", "FULL_CONTROL")
	d.close("Grant")
	permissions := map[string][]string{aclPublicRead: {"READ"}, aclPublicReadWrite: {"READ", "WRITE"}}[acl]
	for _, p := range permissions {
		d.open("Grant")
		d.b = append(d.b, `<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">`...)
		d.text("URI", "http://acs.amazonaws.com/groups/global/AllUsers")
		d.close("Grantee")
		d.text("Permission", p)
		d.close("Grant")
	}
}

func (q objectRequest) getObjectACL() (*reply, error) {
	o, err := q.store.Object(q.bucket, q.key)
	if err != nil {
		return nil, err
	}
	acl := o.Attrs.ACL
	if acl == "" {
		acl = aclDefault
	}
	return q.accessPolicy(acl), nil
}

func (q objectRequest) putObjectACL() (*reply, error) {
	acl, err := q.objectACL()
	if err != nil {
		return nil, err
	}
	err = q.store.SetAttributes(q.bucket, q.key, func(a *store.Attributes) { a.ACL = acl })
	if err != nil {
		return nil, err
	}
	return ok(), nil
}

func (q bucketRequest) getBucketACL() (*reply, error) {
	b, err := q.store.Bucket(q.bucket)
	if err != nil {
		return nil, err
	}
	return q.accessPolicy(b.ACL), nil
}

func (q bucketRequest) putBucketACL() (*reply, error) {
	acl, err := parseBucketACL(q.header("Acl"))
	if err != nil {
		return nil, err
	}
	if err := q.store.SetBucketACL(q.bucket, acl); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK}, nil
}
