package ossemu_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// What the integration tests of the vendor's SDKs expect of the service.

func TestWholeAnswersCarryTheDigestOfTheContent(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(1000)
	sum := md5.Sum(body)
	digest := base64.StdEncoding.EncodeToString(sum[:])
	c.put("key", body)
	c.get("key").wantHeader(t, "Content-MD5", digest)
	c.want(200, c.object("HEAD", "key", "")).wantHeader(t, "Content-MD5", digest)
	// It would be that of other bytes than the answer has.
	c.want(206, withHeader(c.object("GET", "key", ""), "Range", "bytes=0-9")).wantHeader(t, "Content-MD5", "-")

	// The tags of these are not digests, and a copy takes the tag over.
	c.want(200, withBody(c.object("POST", "log", "append&position=0"), "line"))
	c.get("log").wantHeader(t, "Content-MD5", "-")
	c.want(200, withHeader(c.object("PUT", "copy of log", ""), "x-oss-copy-source", "/"+c.emu.Bucket+"/log"))
	c.get("copy of log").wantHeader(t, "Content-MD5", "-", "x-oss-object-type", "Normal")
	c.want(200, withHeader(c.object("PUT", "copy of key", ""), "x-oss-copy-source", "/"+c.emu.Bucket+"/key"))
	c.get("copy of key").wantHeader(t, "Content-MD5", digest)
}

func TestPartAnswersCarryTheDigestOfThePart(t *testing.T) {
	c := start(t, ossemu.Config{})
	var upload struct {
		ID string `xml:"UploadId"`
	}
	c.want(200, c.object("POST", "key", "uploads")).decode(t, &upload)
	sum := md5.Sum([]byte("part"))
	c.want(200, withBody(c.object("PUT", "key", "partNumber=1&uploadId="+upload.ID), "part")).
		wantHeader(t, "Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
}

func TestObjectsTakeTheStorageClassOfTheirBucket(t *testing.T) {
	c := start(t, ossemu.Config{})
	archive := call{method: "PUT", bucket: "archive-bucket", body: []byte(
		"<CreateBucketConfiguration><StorageClass>Archive</StorageClass></CreateBucketConfiguration>")}
	c.want(200, archive)
	c.want(200, withBody(call{method: "PUT", bucket: "archive-bucket", key: "k"}, "x"))
	c.want(200, call{method: "HEAD", bucket: "archive-bucket", key: "k"}).wantHeader(t, "x-oss-storage-class", "Archive")
	own := withHeader(withBody(call{method: "PUT", bucket: "archive-bucket", key: "own"}, "x"), "x-oss-storage-class", "IA")
	c.want(200, own)
	c.want(200, call{method: "HEAD", bucket: "archive-bucket", key: "own"}).wantHeader(t, "x-oss-storage-class", "IA")
}

// To take an unknown sub-resource for none would delete or make a bucket, or
// list one, where a setting was meant.
func TestUnknownSubresourcesOfABucketAreRefused(t *testing.T) {
	c := start(t, ossemu.Config{})
	for _, method := range []string{"GET", "PUT", "POST", "DELETE", "HEAD"} {
		for _, query := range []string{"accessmonitor", "httpsConfig", "policyStatus", "prefix=x&policyStatus=&marker=y"} {
			c.refused(501, "NotImplemented", call{method: method, bucket: c.emu.Bucket, query: query})
		}
	}
	c.refused(501, "NotImplemented", call{method: "GET", query: "policyStatus"})
	c.want(200, call{method: "GET", bucket: c.emu.Bucket, query: "prefix&marker&max-keys=5&delimiter="})
	c.want(200, call{method: "GET", query: "prefix&marker="})
}

func TestRefusalsAreWellFormedWhateverTheKey(t *testing.T) {
	c := start(t, ossemu.Config{})
	for _, key := range []string{"a\x0bb", "a\x00b", "a\xffb", "a\ufffeb", "<&>\t"} {
		var got struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
			Key     string
		}
		a := c.do(c.object("GET", key, ""))
		if err := xml.Unmarshal(a.body, &got); err != nil {
			t.Errorf("%q: %v in %s", key, err, a.body)
		}
		if got.Code != "NoSuchKey" && got.Code != "InvalidObjectName" {
			t.Errorf("%q: refused with %s", key, got.Code)
		}
		if got.Code == "NoSuchKey" && !strings.HasPrefix(got.Key, "a") && got.Key != "<&>\t" {
			t.Errorf("%q: shown as %q", key, got.Key)
		}
	}
	var got struct{ BucketName, Key string }
	c.want(404, call{method: "GET", bucket: "no-such-bucket", key: "k"}).decode(t, &got)
	if got.BucketName != "no-such-bucket" || got.Key != "" {
		t.Errorf("a missing bucket is refused with %+v", got)
	}
}

func TestAMissingUploadHasANumberByOperation(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("src", pattern(10))
	const upload = "uploadId=0123456789ABCDEF0123456789ABCDEF"
	part := c.object("PUT", "key", "partNumber=1&"+upload)
	for ec, q := range map[string]call{
		"0042-00000104": withBody(part, "x"),
		"0042-00000311": withHeader(part, "x-oss-copy-source", "/"+c.emu.Bucket+"/src"),
		"0042-00000002": c.object("DELETE", "key", upload),
	} {
		c.refused(404, "NoSuchUpload", q).wantHeader(t, "x-oss-ec", ec)
	}
}
