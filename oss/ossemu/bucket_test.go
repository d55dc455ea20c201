package ossemu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestBucketsComeAndGo(t *testing.T) {
	c := start(t, ossemu.Config{Region: "cn-shanghai"})
	b := func(method, bucket, query string) call { return call{method: method, bucket: bucket, query: query} }
	c.want(200, withHeader(b("PUT", "new-bucket", ""), "x-oss-acl", "public-read")).wantHeader(t, "Location", "/new-bucket")
	c.want(200, b("PUT", "new-bucket", ""))
	c.want(200, b("HEAD", "new-bucket", ""))
	var info struct {
		Bucket struct {
			Name, Location, ExtranetEndpoint, IntranetEndpoint, StorageClass, DataRedundancyType, CreationDate string
			Grant                                                                                              string `xml:"AccessControlList>Grant"`
			Owner                                                                                              struct{ ID string }
		}
	}
	c.want(200, b("GET", "new-bucket", "bucketInfo")).decode(t, &info)
	if i := info.Bucket; i.Name != "new-bucket" || i.Location != "oss-cn-shanghai" || "http://"+i.ExtranetEndpoint != c.emu.Endpoint ||
		i.IntranetEndpoint != i.ExtranetEndpoint || i.StorageClass != "Standard" || i.Grant != "public-read" || i.Owner.ID == "" {
		t.Errorf("%+v", i)
	}
	c.want(200, withBody(b("PUT", "cool-bucket", ""),
		"<CreateBucketConfiguration><StorageClass>IA</StorageClass><DataRedundancyType>ZRS</DataRedundancyType></CreateBucketConfiguration>"))
	c.want(200, b("GET", "cool-bucket", "bucketInfo")).decode(t, &info)
	if i := info.Bucket; i.StorageClass != "IA" || i.DataRedundancyType != "ZRS" || i.Grant != "private" {
		t.Errorf("%+v", i)
	}
	if got := string(c.want(200, b("GET", "new-bucket", "location")).body); !strings.HasSuffix(got, "<LocationConstraint>oss-cn-shanghai</LocationConstraint>") {
		t.Errorf("location %s", got)
	}
	c.refused(400, "MalformedXML", withBody(b("PUT", "cool-bucket", ""), "<x>"))
	c.refused(400, "InvalidBucketName", b("PUT", "Bad_Name", ""))
	c.refused(400, "InvalidArgument", withHeader(b("PUT", "new-bucket", ""), "x-oss-acl", "mine"))

	c.want(200, withBody(call{method: "PUT", bucket: "new-bucket", key: "key"}, "12345"))
	var stat struct{ Storage, ObjectCount, MultipartUploadCount int64 }
	c.want(200, b("GET", "new-bucket", "stat")).decode(t, &stat)
	if stat.Storage != 5 || stat.ObjectCount != 1 {
		t.Errorf("%+v", stat)
	}
	c.refused(409, "BucketNotEmpty", b("DELETE", "new-bucket", "")).wantHeader(t, "x-oss-ec", "0015-00000301")
	c.want(204, call{method: "DELETE", bucket: "new-bucket", key: "key"})
	c.want(204, b("DELETE", "new-bucket", ""))
	for _, query := range []string{"", "bucketInfo", "location", "stat", "acl", "versioning", "cors", "list-type=2", "uploads", "versions"} {
		c.refused(404, "NoSuchBucket", b("GET", "new-bucket", query)).wantHeader(t, "x-oss-ec", "0015-00000101")
	}
	c.refused(404, "NoSuchBucket", b("HEAD", "new-bucket", ""))
	c.refused(404, "NoSuchBucket", b("DELETE", "new-bucket", ""))
}

func TestSettingsThatNobodyHasSet(t *testing.T) {
	c := start(t, ossemu.Config{})
	for query, code := range map[string]string{"cors": "NoSuchCORSConfiguration", "lifecycle": "NoSuchLifecycle", "website": "NoSuchWebsiteConfiguration", "policy": "NoSuchBucketPolicy"} {
		c.refused(404, code, c.object("GET", "", query))
	}
	if got := string(c.want(200, c.object("GET", "", "versioning")).body); !strings.Contains(got, "<VersioningConfiguration></VersioningConfiguration>") {
		t.Errorf("versioning %s", got)
	}
	c.want(200, c.object("GET", "", "logging"))
	c.refused(501, "NotImplemented", withBody(c.object("PUT", "", "versioning"), "<VersioningConfiguration/>"))
	c.refused(501, "NotImplemented", withBody(c.object("PUT", "", "cors"), "<CORSConfiguration/>"))
	c.emu.Put("key", nil)
	c.refused(501, "NotImplemented", c.object("GET", "key", "x-oss-process=image/resize"))
	c.refused(405, "MethodNotAllowed", c.object("PATCH", "key", ""))
	c.refused(405, "MethodNotAllowed", call{method: "DELETE"})
}

func TestListingOfBuckets(t *testing.T) {
	c := start(t, ossemu.Config{Buckets: []string{"aaa-1", "aaa-2", "bbb-1"}})
	type result struct {
		IsTruncated        bool
		NextMarker, Prefix string
		Owner              struct{ ID string }
		Bucket             []struct{ Name, Location, Region, StorageClass, ExtranetEndpoint, CreationDate string } `xml:"Buckets>Bucket"`
	}
	list := func(query string) (r result) {
		t.Helper()
		c.want(200, call{method: "GET", query: query}).decode(t, &r)
		return r
	}
	names := func(r result) (n []string) {
		for _, b := range r.Bucket {
			n = append(n, b.Name)
		}
		return n
	}
	all := list("")
	if d := cmp.Diff([]string{"aaa-1", "aaa-2", "bbb-1"}, names(all)); d != "" || all.Owner.ID == "" || all.Bucket[0].Region != ossemu.DefaultRegion {
		t.Errorf("%+v %s", all, d)
	}
	r := list("prefix=aaa&max-keys=1")
	if !r.IsTruncated || r.NextMarker != "aaa-1" || len(r.Bucket) != 1 {
		t.Errorf("%+v", r)
	}
	if r = list("prefix=aaa&max-keys=1&marker=aaa-1"); r.IsTruncated || r.Bucket[0].Name != "aaa-2" {
		t.Errorf("%+v", r)
	}
	c.refused(403, "AccessDenied", call{method: "GET", anonymous: true})
}

func TestWhatAnybodyMayDo(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	c.emu.Put("own", []byte("y"))
	c.want(200, withHeader(c.object("PUT", "own", "acl"), "x-oss-object-acl", "private"))
	anonymous := func(q call) call { q.anonymous = true; return q }
	get, list := anonymous(c.object("GET", "key", "")), anonymous(c.object("GET", "", ""))
	put, del := anonymous(withBody(c.object("PUT", "new", ""), "x")), anonymous(c.object("DELETE", "new", ""))
	info := anonymous(c.object("GET", "", "bucketInfo"))
	own := anonymous(c.object("GET", "own", ""))
	for _, row := range []struct {
		acl        string
		get, write int
	}{{"private", 403, 403}, {"public-read", 200, 403}, {"public-read-write", 200, 0}} {
		c.want(200, withHeader(c.object("PUT", "", "acl"), "x-oss-acl", row.acl))
		var p struct {
			Grant string `xml:"AccessControlList>Grant"`
		}
		c.want(200, c.object("GET", "", "acl")).decode(t, &p)
		if p.Grant != row.acl {
			t.Errorf("acl %q, want %q", p.Grant, row.acl)
		}
		c.want(row.get, get)
		c.want(row.get, list)
		if row.write == 403 {
			c.refused(403, "AccessDenied", put)
			c.refused(403, "AccessDenied", del)
		} else {
			c.want(200, put)
			c.want(204, del)
		}
		c.refused(403, "AccessDenied", info)
		c.refused(403, "AccessDenied", own)
	}
	c.want(200, withHeader(c.object("PUT", "", "acl"), "x-oss-acl", "private"))
	c.want(200, withHeader(c.object("PUT", "own", "acl"), "x-oss-object-acl", "public-read"))
	c.want(200, own)
	c.want(200, withHeader(c.object("PUT", "own", "acl"), "x-oss-object-acl", "default"))
	a := c.want(200, c.object("GET", "own", "acl"))
	if !strings.Contains(string(a.body), "<Grant>default</Grant>") {
		t.Errorf("%s", a.body)
	}
	a = c.refused(403, "AccessDenied", own)
	if strings.Contains(string(a.body), "Endpoint") {
		t.Error("an Endpoint element sends clients elsewhere")
	}
	c.refused(404, "NoSuchBucket", call{method: "GET", bucket: "no-such-bucket", key: "key", anonymous: true})
}

func TestTrafficLimit(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	a := c.want(200, withHeader(c.object("GET", "key", ""), "x-oss-traffic-limit", "819200"))
	if a.header.Get("x-oss-qos-delay-time") == "" {
		t.Error("no delay time")
	}
	c.want(200, c.object("GET", "key", "x-oss-traffic-limit=838860800"))
	for _, bad := range []string{"1", "819199", "838860801", "fast"} {
		c.refused(400, "InvalidArgument", withHeader(c.object("GET", "key", ""), "x-oss-traffic-limit", bad)).wantHeader(t, "x-oss-ec", "0004-00000502")
	}
	q := withHeader(c.object("GET", "key", fmt.Sprint("x-oss-traffic-limit=", 819200)), "x-oss-traffic-limit", "819200")
	c.refused(400, "InvalidArgument", q).wantHeader(t, "x-oss-ec", "0004-00000501")
}
