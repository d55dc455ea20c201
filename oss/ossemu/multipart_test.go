package ossemu_test

import (
	"bytes"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

const minPart = 102400

// begin begins an upload and returns its id.
func (c *client) begin(key string, header ...string) string {
	c.t.Helper()
	var r struct{ Bucket, Key, UploadId, EncodingType string }
	c.want(200, withHeader(c.object("POST", key, "uploads"), header...)).decode(c.t, &r)
	if r.Bucket != c.emu.Bucket || r.Key != key || !regexp.MustCompile(`^[0-9A-F]{32}$`).MatchString(r.UploadId) {
		c.t.Fatalf("initiate: %+v", r)
	}
	return r.UploadId
}

func partQuery(id string, number int) string {
	return fmt.Sprintf("partNumber=%d&uploadId=%s", number, id)
}

// part uploads a part and returns its tag as the server wrote it.
func (c *client) part(key, id string, number int, body []byte) string {
	c.t.Helper()
	q := c.object("PUT", key, partQuery(id, number))
	q.body = body
	a := c.want(200, q)
	a.wantHeader(c.t, "ETag", tagOf(body), "x-oss-hash-crc64ecma", crcOf(body))
	return a.header.Get("ETag")
}

func completeBody(parts ...any) string {
	s := `<?xml version="1.0" encoding="UTF-8"?><CompleteMultipartUpload>`
	for i := 0; i < len(parts); i += 2 {
		s += fmt.Sprintf("<Part><PartNumber>%v</PartNumber><ETag>%v</ETag></Part>", parts[i], strings.ReplaceAll(fmt.Sprint(parts[i+1]), `"`, "&#34;"))
	}
	return s + "</CompleteMultipartUpload>"
}

func (c *client) complete(key, id string, parts ...any) call {
	return withBody(c.object("POST", key, "uploadId="+id), completeBody(parts...))
}

func TestMultipartUpload(t *testing.T) {
	c := start(t, ossemu.Config{})
	key := "dir/big file"
	id := c.begin(key, "Content-Type", "video/mp4", "x-oss-meta-a", "b", "x-oss-storage-class", "IA")
	bodies := [][]byte{pattern(minPart), pattern(minPart + 77)[1:], pattern(10)}
	numbers := []int{2, 5, 10000} // gaps are allowed
	var parts []any
	var whole []byte
	sum := md5.New()
	c.part(key, id, 5, []byte("to be replaced"))
	for i, b := range bodies {
		tag := c.part(key, id, numbers[i], b)
		whole = append(whole, b...)
		fmt.Fprintf(sum, "%X", md5.Sum(b))
		// Clients repeat tags with quotes, without, and in lower case.
		parts = append(parts, numbers[i], []string{tag, strings.Trim(tag, `"`), strings.ToLower(tag)}[i])
	}

	var l struct {
		UploadId             string
		NextPartNumberMarker int
		MaxParts             int
		IsTruncated          bool
		Part                 []struct {
			PartNumber, Size int
			ETag             string
			HashCrc64ecma    string
		}
	}
	c.want(200, c.object("GET", key, "uploadId="+id+"&max-parts=2")).decode(t, &l)
	if !l.IsTruncated || l.NextPartNumberMarker != 5 || len(l.Part) != 2 || l.Part[1].ETag != tagOf(bodies[1]) || l.Part[1].HashCrc64ecma != crcOf(bodies[1]) {
		t.Errorf("first page of parts: %+v", l)
	}
	l.Part = nil
	c.want(200, c.object("GET", key, "uploadId="+id+"&part-number-marker=5")).decode(t, &l)
	if l.IsTruncated || len(l.Part) != 1 || l.Part[0].PartNumber != 10000 || l.Part[0].Size != 10 {
		t.Errorf("second page of parts: %+v", l)
	}

	c.refused(404, "NoSuchKey", c.object("HEAD", key, "")) // nothing is visible yet
	want := fmt.Sprintf(`"%X-3"`, sum.Sum(nil))
	a := c.want(200, c.complete(key, id, parts...))
	a.wantHeader(t, "ETag", want, "x-oss-hash-crc64ecma", crcOf(whole))
	var r struct{ Location, Bucket, Key, ETag string }
	a.decode(t, &r)
	if r.ETag != want || r.Key != key || r.Location == "" {
		t.Errorf("complete: %+v", r)
	}
	a = c.get(key)
	a.wantHeader(t, "ETag", want, "x-oss-hash-crc64ecma", crcOf(whole), "x-oss-object-type", "Multipart", "Content-Type", "video/mp4",
		"x-oss-meta-a", "b", "x-oss-storage-class", "IA")
	if !bytes.Equal(a.body, whole) {
		t.Error("content differs")
	}
	a = c.want(206, withHeader(c.object("GET", key, ""), "Range", fmt.Sprintf("bytes=%d-%d", minPart-5, minPart+4)))
	if !bytes.Equal(a.body, whole[minPart-5:minPart+5]) {
		t.Error("a range over the seam of two parts differs")
	}
	c.refused(404, "NoSuchUpload", c.complete(key, id, parts...))
	c.refused(404, "NoSuchUpload", c.object("DELETE", key, "uploadId="+id))
}

func TestMultipartRefusals(t *testing.T) {
	c := start(t, ossemu.Config{})
	id := c.begin("key")
	tag1, tag2 := c.part("key", id, 1, pattern(100)), c.part("key", id, 2, pattern(minPart))
	ec := func(a answer, want string) { t.Helper(); a.wantHeader(t, "x-oss-ec", want) }
	ec(c.refused(400, "InvalidPartOrder", c.complete("key", id, 2, tag2, 1, tag1)), "0042-00000209")
	c.refused(400, "InvalidPartOrder", c.complete("key", id, 2, tag2, 2, tag2))
	c.refused(400, "InvalidPart", c.complete("key", id, 2, tag1))
	c.refused(400, "InvalidPart", c.complete("key", id, 3, tag1))
	ec(c.refused(400, "EntityTooSmall", c.complete("key", id, 1, tag1, 2, tag2)), "0042-00000213")
	ec(c.refused(400, "MalformedXML", withBody(c.object("POST", "key", "uploadId="+id), "<Complete")), "0042-00000205")
	c.refused(400, "MalformedXML", c.complete("key", id, "one", tag1))
	all := withBody(withHeader(c.object("POST", "key", "uploadId="+id), "x-oss-complete-all", "yes"), completeBody(2, tag2))
	ec(c.refused(400, "InvalidArgument", all), "0042-00000216")
	c.refused(404, "NoSuchUpload", c.complete("other", id, 2, tag2))
	c.refused(404, "NoSuchUpload", withBody(c.object("PUT", "key", partQuery("0123", 1)), "x"))
	for _, n := range []string{"0", "10001", "x", ""} {
		c.refused(400, "InvalidArgument", withBody(c.object("PUT", "key", "uploadId="+id+"&partNumber="+n), "x"))
	}
	c.refused(400, "InvalidDigest", withBody(withHeader(c.object("PUT", "key", partQuery(id, 1)), "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="), "x"))
	c.emu.Put("key", []byte("kept"))
	q := c.complete("key", id, 2, tag2)
	q.header = map[string]string{"x-oss-forbid-overwrite": "true"}
	c.refused(409, "FileAlreadyExists", q)
	// None of it has harmed the upload.
	c.want(200, c.complete("key", id, 2, tag2))
}

func TestCompleteAllAndAnEmptyList(t *testing.T) {
	c := start(t, ossemu.Config{})
	id := c.begin("key")
	first, second := pattern(minPart), pattern(7)
	c.part("key", id, 9, second)
	c.part("key", id, 3, first)
	c.want(200, withHeader(c.object("POST", "key", "uploadId="+id), "x-oss-complete-all", "yes", "x-oss-object-acl", "private"))
	if got := c.get("key").body; !bytes.Equal(got, append(first, second...)) {
		t.Error("content differs")
	}
	id = c.begin("empty")
	c.want(200, c.complete("empty", id))
	c.get("empty").wantHeader(t, "Content-Length", "0", "x-oss-object-type", "Multipart")
}

func TestAbortAndListingOfUploads(t *testing.T) {
	c := start(t, ossemu.Config{})
	ids := map[string]string{}
	for _, key := range []string{"a", "dir/b", "dir/c", "e f"} {
		ids[key] = c.begin(key)
	}
	second := c.begin("a")
	type page struct {
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string
		EncodingType                      string
		Upload                            []struct{ Key, UploadId, StorageClass, Initiated string }
		CommonPrefixes                    []struct{ Prefix string }
	}
	list := func(query string) page {
		t.Helper()
		var p page
		c.want(200, c.object("GET", "", "uploads&"+query)).decode(t, &p)
		return p
	}
	var seen []string
	p := page{}
	for {
		p = list("max-uploads=1&key-marker=" + strings.ReplaceAll(p.NextKeyMarker, " ", "%20") + "&upload-id-marker=" + p.NextUploadIdMarker)
		for _, u := range p.Upload {
			seen = append(seen, u.Key)
		}
		if !p.IsTruncated {
			break
		}
	}
	if d := cmp.Diff([]string{"a", "a", "dir/b", "dir/c", "e f"}, seen); d != "" {
		t.Error(d)
	}
	if p := list("delimiter=/"); len(p.Upload) != 3 || len(p.CommonPrefixes) != 1 || p.CommonPrefixes[0].Prefix != "dir/" {
		t.Errorf("with delimiter: %+v", p)
	}
	if p := list("prefix=e&encoding-type=url"); p.EncodingType != "url" || p.Upload[0].Key != "e%20f" {
		t.Errorf("encoded: %+v", p)
	}
	c.part("a", second, 1, pattern(1))
	c.want(204, c.object("DELETE", "a", "uploadId="+second))
	c.refused(404, "NoSuchUpload", c.object("DELETE", "a", "uploadId="+second))
	c.refused(404, "NoSuchUpload", c.object("GET", "a", "uploadId="+second))
	if p := list("prefix=a"); len(p.Upload) != 1 || p.Upload[0].UploadId != ids["a"] {
		t.Errorf("after abort: %+v", p)
	}
}

func TestCopy(t *testing.T) {
	c := start(t, ossemu.Config{Buckets: []string{"bucket-one", "bucket-two"}})
	body := pattern(200_000)
	src := "dir/a b+c"
	put := withHeader(c.object("PUT", src, ""), "Content-Type", "text/plain", "x-oss-meta-n", "v", "x-oss-tagging", "t=1")
	put.body = body
	c.want(200, put)
	for _, source := range []string{"/bucket-one/dir/a+b%2Bc", "/bucket-one/dir%2Fa%20b%2Bc", "bucket-one/dir/a%20b%2Bc", "/bucket-one/dir/a%20b%2Bc?versionId=null"} {
		a := c.want(200, withHeader(call{method: "PUT", bucket: "bucket-two", key: "copy"}, "x-oss-copy-source", source))
		a.wantHeader(t, "ETag", tagOf(body), "x-oss-hash-crc64ecma", crcOf(body))
		var r struct {
			XMLName            xml.Name `xml:"CopyObjectResult"`
			ETag, LastModified string
		}
		a.decode(t, &r)
		if r.ETag != tagOf(body) || !strings.HasSuffix(r.LastModified, ".000Z") {
			t.Errorf("%+v", r)
		}
		a = c.want(200, call{method: "GET", bucket: "bucket-two", key: "copy"})
		a.wantHeader(t, "Content-Type", "text/plain", "x-oss-meta-n", "v", "x-oss-tagging-count", "1", "x-oss-object-type", "Normal")
		if !bytes.Equal(a.body, body) {
			t.Error("content differs")
		}
	}
	// Onto itself, with new properties: how metadata is changed.
	c.want(200, withHeader(c.object("PUT", src, ""), "x-oss-copy-source", "/bucket-one/dir/a%20b%2Bc", "x-oss-metadata-directive", "REPLACE",
		"Content-Type", "text/html", "x-oss-meta-m", "w", "x-oss-tagging-directive", "Replace", "x-oss-tagging", "u=1&w=2"))
	a := c.get(src)
	a.wantHeader(t, "Content-Type", "text/html", "x-oss-meta-n", "-", "x-oss-meta-m", "w", "x-oss-tagging-count", "2", "ETag", tagOf(body))
	if !bytes.Equal(a.body, body) {
		t.Error("content differs")
	}

	c.want(204, c.object("DELETE", src, ""))
	if got := c.want(200, call{method: "GET", bucket: "bucket-two", key: "copy"}).body; !bytes.Equal(got, body) {
		t.Error("the copy went with its source")
	}
}

func TestCopyRefusals(t *testing.T) {
	c := start(t, ossemu.Config{CopyLimit: 1000})
	c.emu.Put("src", pattern(1000))
	c.emu.Put("large", pattern(1001))
	from := func(source string, header ...string) call {
		return withHeader(c.object("PUT", "dst", ""), append(header, "x-oss-copy-source", source)...)
	}
	src := "/" + c.emu.Bucket + "/src"
	tag := tagOf(pattern(1000))
	c.refused(404, "NoSuchKey", from("/"+c.emu.Bucket+"/nothing"))
	c.refused(404, "NoSuchBucket", from("/no-such-bucket/key"))
	c.refused(400, "InvalidArgument", from("nonsense"))
	c.refused(400, "EntityTooLarge", from("/"+c.emu.Bucket+"/large"))
	c.refused(412, "PreconditionFailed", from(src, "x-oss-copy-source-if-match", "other"))
	c.want(304, from(src, "x-oss-copy-source-if-none-match", tag))
	c.refused(400, "InvalidArgument", from(src, "x-oss-metadata-directive", "MERGE"))
	c.want(200, from(src, "x-oss-copy-source-if-match", tag))
	c.refused(409, "FileAlreadyExists", from(src, "x-oss-forbid-overwrite", "true"))
}

func TestUploadPartCopy(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(3 * minPart)
	c.emu.Put("src", body)
	src := "/" + c.emu.Bucket + "/src"
	id := c.begin("dst")
	copyPart := func(number int, header ...string) answer {
		t.Helper()
		return c.do(withHeader(c.object("PUT", "dst", partQuery(id, number)), append(header, "x-oss-copy-source", src)...))
	}
	a := copyPart(1, "x-oss-copy-source-range", fmt.Sprintf("bytes=10-%d", 10+minPart-1))
	var r struct {
		XMLName            xml.Name `xml:"CopyPartResult"`
		ETag, LastModified string
	}
	a.decode(t, &r)
	if a.status != 200 || r.ETag == "" {
		t.Fatalf("status %d, %+v", a.status, r)
	}
	first := r.ETag
	copyPart(2).decode(t, &r)
	c.want(200, c.complete("dst", id, 1, first, 2, r.ETag))
	a = c.get("dst")
	want := append(bytes.Clone(body[10:10+minPart]), body...)
	a.wantHeader(t, "x-oss-hash-crc64ecma", crcOf(want), "Content-Length", strconv.Itoa(len(want)))
	if !bytes.Equal(a.body, want) {
		t.Error("content differs")
	}
	id = c.begin("dst")
	for _, bad := range []string{"bytes=5-" + strconv.Itoa(len(body)), fmt.Sprintf("bytes=%d-", len(body))} {
		if a := copyPart(1, "x-oss-copy-source-range", bad); a.status != 416 || a.code(t) != "InvalidRange" {
			t.Errorf("range %s: status %d", bad, a.status)
		}
	}
	if a := copyPart(1, "x-oss-copy-source-range", "bytes=-5"); a.status != 400 {
		t.Errorf("suffix range: status %d", a.status)
	}
	if a := copyPart(1, "x-oss-copy-source-if-match", "other"); a.status != 412 {
		t.Errorf("other version: status %d", a.status)
	}
}

func TestAppend(t *testing.T) {
	c := start(t, ossemu.Config{})
	at := func(position string, body string, header ...string) call {
		return withBody(withHeader(c.object("POST", "log", "append&position="+position), header...), body)
	}
	a := c.want(200, at("0", "hello ", "Content-Type", "text/plain", "x-oss-meta-a", "1"))
	a.wantHeader(t, "x-oss-next-append-position", "6", "x-oss-hash-crc64ecma", crcOf([]byte("hello ")))
	first := a.header.Get("ETag")
	a = c.want(200, at("6", "world", "x-oss-meta-a", "2", "x-oss-object-acl", "public-read"))
	a.wantHeader(t, "x-oss-next-append-position", "11", "x-oss-hash-crc64ecma", crcOf([]byte("hello world")))
	if tag := a.header.Get("ETag"); tag == first || tag == "" {
		t.Errorf("tag %s after %s", tag, first)
	}
	a = c.get("log")
	a.wantHeader(t, "x-oss-object-type", "Appendable", "Content-Type", "text/plain", "x-oss-meta-a", "1", "x-oss-next-append-position", "11")
	if string(a.body) != "hello world" {
		t.Errorf("content %q", a.body)
	}
	c.want(200, c.object("HEAD", "log", "")).wantHeader(t, "x-oss-next-append-position", "11")
	c.refused(409, "PositionNotEqualToLength", at("5", "x")).wantHeader(t, "x-oss-next-append-position", "11", "x-oss-ec", "0026-00000016")
	c.refused(409, "PositionNotEqualToLength", withBody(c.object("POST", "new", "append&position=3"), "x")).wantHeader(t, "x-oss-next-append-position", "0")
	c.put("normal", []byte("abc"))
	c.refused(409, "ObjectNotAppendable", withBody(c.object("POST", "normal", "append&position=3"), "x"))
	c.refused(400, "InvalidArgument", at("-1", "x"))
	c.refused(400, "InvalidArgument", at("", "x"))
	c.refused(400, "InvalidDigest", at("11", "x", "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="))
	if got := c.get("log").body; string(got) != "hello world" {
		t.Errorf("refused appends left %q", got)
	}
}

func TestDeleteMany(t *testing.T) {
	c := start(t, ossemu.Config{})
	keys := []string{"a", "b&c", "d\x01e", "ü/ "}
	for _, key := range keys {
		c.emu.Put(key, []byte("x"))
	}
	body := "<Delete><Quiet>false</Quiet>"
	for _, key := range []string{"a", "b&amp;c", "d&#1;e", "ü/ ", "absent"} {
		body += "<Object><Key>" + key + "</Key></Object>"
	}
	body += "</Delete>"
	var r struct {
		EncodingType string
		Deleted      []struct{ Key string }
	}
	a := c.want(200, withMD5(c.object("POST", "", "delete&encoding-type=url"), body))
	a.decode(t, &r)
	var got []string
	for _, d := range r.Deleted {
		got = append(got, d.Key)
	}
	if d := cmp.Diff([]string{"a", "b%26c", "d%01e", "%C3%BC%2F%20", "absent"}, got); d != "" || r.EncodingType != "url" {
		t.Errorf("%s%s", r.EncodingType, d)
	}
	if left := c.emu.Keys(""); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	c.emu.Put("a", nil)
	a = c.want(200, withMD5(c.object("POST", "", "delete"), strings.Replace(body, "false", "true", 1)))
	if strings.Contains(string(a.body), "Deleted") || len(c.emu.Keys("")) != 0 {
		t.Errorf("quiet: %s, left %q", a.body, c.emu.Keys(""))
	}
	c.refused(400, "MissingArgument", withBody(c.object("POST", "", "delete"), body))
	c.refused(400, "MalformedXML", withMD5(c.object("POST", "", "delete"), "<Delete><Object>"))
	c.refused(400, "MalformedXML", withMD5(c.object("POST", "", "delete"), "<Delete></Delete>"))
	many := "<Delete>" + strings.Repeat("<Object><Key>a</Key></Object>", 1001) + "</Delete>"
	c.refused(400, "MalformedXML", withMD5(c.object("POST", "", "delete"), many))
	c.want(200, withMD5(c.object("POST", "", "delete"), strings.Replace(many, "<Object><Key>a</Key></Object>", "", 1)))
	q := withMD5(c.object("POST", "", "delete"), body)
	q.body = append(q.body, ' ')
	c.refused(400, "InvalidDigest", q)
}
