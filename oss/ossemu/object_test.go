package ossemu_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"hash/crc64"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func crcOf(b []byte) string {
	return strconv.FormatUint(crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)), 10)
}

func tagOf(b []byte) string { return fmt.Sprintf(`"%X"`, md5.Sum(b)) }

// wantHeader fails for each header that is not as said; "-" means absent.
func (a answer) wantHeader(t testing.TB, header ...string) {
	t.Helper()
	for i := 0; i < len(header); i += 2 {
		got, want := a.header.Values(header[i]), header[i+1]
		if want == "-" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("header %s: %q, want %q", header[i], got, want)
		}
	}
}

func TestPutAnswersWithTagDigestAndChecksum(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(1000)
	sum := md5.Sum(body)
	a := c.put("key", body)
	a.wantHeader(t, "ETag", tagOf(body), "x-oss-hash-crc64ecma", crcOf(body), "Content-MD5", base64.StdEncoding.EncodeToString(sum[:]),
		"Content-Length", "0", "Server", "AliyunOSS")
	if id := a.header.Get("x-oss-request-id"); !regexp.MustCompile(`^[0-9A-F]{24}$`).MatchString(id) {
		t.Errorf("request id %q", id)
	}
	if _, err := time.Parse(http.TimeFormat, a.header.Get("Date")); err != nil {
		t.Errorf("date: %v", err)
	}
	if _, err := strconv.Atoi(a.header.Get("x-oss-server-time")); err != nil {
		t.Errorf("server time: %v", err)
	}
}

func TestHeadersComeBackAsTheyWerePut(t *testing.T) {
	c := start(t, ossemu.Config{})
	q := withHeader(c.object("PUT", "key", ""),
		"Content-Type", "text/plain", "Cache-Control", "no-cache", "Content-Disposition", "inline", "Content-Encoding", "identity",
		"Content-Language", "de", "Expires", "Wed, 21 Oct 2026 07:28:00 GMT", "x-oss-meta-Author", "somebody", "x-oss-meta-empty", "",
		"x-oss-metadata-directive", "COPY", "x-oss-storage-class", "IA", "x-oss-server-side-encryption", "AES256",
		"x-oss-tagging", "a=1&b%20c=2%2B3")
	q.body = []byte("hello")
	c.want(200, q)
	want := []string{
		"Content-Type", "text/plain", "Cache-Control", "no-cache", "Content-Disposition", "inline", "Content-Encoding", "identity",
		"Content-Language", "de", "Expires", "Wed, 21 Oct 2026 07:28:00 GMT", "x-oss-meta-author", "somebody", "x-oss-metadata-directive", "-",
		"x-oss-meta-data-directive", "-", "x-oss-storage-class", "IA", "x-oss-server-side-encryption", "AES256", "x-oss-tagging-count", "2",
		"Accept-Ranges", "bytes", "x-oss-object-type", "Normal", "ETag", tagOf(q.body), "x-oss-hash-crc64ecma", crcOf(q.body), "Content-Length", "5",
	}
	for _, method := range []string{"GET", "HEAD"} {
		a := c.want(200, c.object(method, "key", ""))
		a.wantHeader(t, want...)
		if d := a.header.Get("Last-Modified"); len(d) != 29 {
			t.Errorf("Last-Modified %q", d)
		}
		if wantBody := map[string]string{"GET": "hello"}[method]; string(a.body) != wantBody {
			t.Errorf("%s: body %q", method, a.body)
		}
	}
	c.put("plain", nil)
	c.get("plain").wantHeader(t, "Content-Type", "application/octet-stream", "Cache-Control", "-", "x-oss-storage-class", "Standard", "x-oss-tagging-count", "-")
}

func TestResponseParametersReplaceHeaders(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	a := c.want(200, c.object("GET", "key", "response-content-type=text/html&response-cache-control=no-store&response-content-disposition=attachment"+
		"&response-expires=never&response-content-language=fr&response-content-encoding=utf-8"))
	a.wantHeader(t, "Content-Type", "text/html", "Cache-Control", "no-store", "Content-Disposition", "attachment", "Expires", "never",
		"Content-Language", "fr", "Content-Encoding", "utf-8")
}

func TestObjectMetaTellsLittle(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(300)
	c.put("key", body)
	a := c.want(200, c.object("HEAD", "key", "objectMeta"))
	a.wantHeader(t, "Content-Length", "300", "ETag", tagOf(body), "x-oss-object-type", "Normal", "x-oss-storage-class", "-")
	if a := c.want(200, c.object("GET", "key", "objectMeta")); len(a.body) != 0 {
		t.Errorf("body of %d bytes", len(a.body))
	}
}

func TestWhatDoesNotExistIsSaidInBodyOrHeader(t *testing.T) {
	c := start(t, ossemu.Config{})
	a := c.refused(404, "NoSuchKey", c.object("GET", "no/such", ""))
	a.wantHeader(t, "Content-Type", "application/xml", "x-oss-ec", "0026-00000001", "Content-Length", strconv.Itoa(len(a.body)))
	for _, want := range []string{"<Key>no/such</Key>", "<EC>0026-00000001</EC>", "<RequestId>" + a.header.Get("x-oss-request-id") + "</RequestId>"} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("no %s in %s", want, a.body)
		}
	}
	if strings.Contains(string(a.body), "<Endpoint>") {
		t.Error("an Endpoint element sends clients elsewhere")
	}
	a = c.refused(404, "NoSuchKey", c.object("HEAD", "no/such", ""))
	if len(a.body) != 0 {
		t.Error("a HEAD with a body")
	}
	c.refused(404, "NoSuchKey", c.object("HEAD", "no/such", "objectMeta"))
	c.refused(404, "NoSuchBucket", call{method: "GET", bucket: "no-such-bucket", key: "key"})
	c.refused(404, "NoSuchBucket", withBody(call{method: "PUT", bucket: "no-such-bucket", key: "key"}, "x"))
	c.want(204, c.object("DELETE", "no/such", ""))
}

func TestDigestsAndBoundsOfPut(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.refused(400, "InvalidDigest", withBody(withHeader(c.object("PUT", "key", ""), "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="), "x"))
	c.refused(404, "NoSuchKey", c.object("GET", "key", ""))
	c.want(200, withMD5(c.object("PUT", "key", ""), "x"))
	for name, header := range map[string][]string{
		"InvalidArgument":                 {"x-oss-storage-class", "Fast"},
		"MetadataTooLarge":                {"x-oss-meta-a", strings.Repeat("x", 9000)},
		"InvalidTag":                      {"x-oss-tagging", "a=1&a=2"},
		"InvalidEncryptionAlgorithmError": {"x-oss-server-side-encryption", "ROT13"},
	} {
		c.refused(400, name, withBody(withHeader(c.object("PUT", "key", ""), header...), "y"))
	}
	c.refused(400, "InvalidArgument", withHeader(c.object("PUT", "key", ""), "x-oss-object-acl", "everybody"))
	c.refused(501, "NotImplemented", withHeader(c.object("PUT", "key", ""), "If-Modified-Since", time.Now().UTC().Format(http.TimeFormat)))
	c.refused(501, "NotImplemented", withHeader(c.object("PUT", "key", ""), "x-oss-callback", "e30="))
	if got := c.get("key").body; string(got) != "x" {
		t.Errorf("a refused PUT left %q", got)
	}
}

func TestCheapTags(t *testing.T) {
	c := start(t, ossemu.Config{CheapETags: true})
	for _, size := range []int{0, 1000, 300_000} {
		body := pattern(size)
		a := c.put("key", body)
		tag := a.header.Get("ETag")
		a.wantHeader(t, "Content-MD5", "-", "x-oss-hash-crc64ecma", crcOf(body))
		if tag == tagOf(body) || len(tag) != 34 || tag != c.put("key", body).header.Get("ETag") {
			t.Errorf("tag %s", tag)
		}
		c.get("key").wantHeader(t, "Content-MD5", "-", "ETag", tag)
		if other := c.put("key", append(body, 'x')).header.Get("ETag"); other == tag {
			t.Error("another content has the same tag")
		}
	}
	c.want(200, withMD5(c.object("PUT", "key", ""), "content")).wantHeader(t, "ETag", tagOf([]byte("content")))
	c.refused(400, "InvalidDigest", withBody(withHeader(c.object("PUT", "key", ""), "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="), "x"))
}

func TestForbidOverwrite(t *testing.T) {
	c := start(t, ossemu.Config{})
	forbid := func(v string) call {
		return withBody(withHeader(c.object("PUT", "key", ""), "x-oss-forbid-overwrite", v), "first")
	}
	c.want(200, forbid("true"))
	c.refused(409, "FileAlreadyExists", forbid("true")).wantHeader(t, "x-oss-ec", "0026-00000002")
	c.refused(400, "InvalidArgument", forbid("maybe")).wantHeader(t, "x-oss-ec", "0017-00000279")
	c.want(200, forbid("false"))
}

func TestChunkedBodiesAndEmptyOnes(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(300_000)
	r := c.request(c.object("PUT", "key", ""))
	r.Body, r.ContentLength = http.NoBody, -1
	r.Body = readCloser{bytes.NewReader(body)}
	resp, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only read
	if got := c.get("key").body; resp.StatusCode != 200 || !bytes.Equal(got, body) {
		t.Errorf("chunked body: status %d, %d bytes stored", resp.StatusCode, len(got))
	}
	r = c.request(c.object("PUT", "key", ""))
	r.Body, r.ContentLength = readCloser{bytes.NewReader(nil)}, -1
	if resp, err = c.http.Do(r); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only read
	c.get("key").wantHeader(t, "Content-Length", "0", "ETag", tagOf(nil), "x-oss-hash-crc64ecma", "0")
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func TestConditions(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := []byte("content")
	c.put("key", body)
	modified, err := time.Parse(http.TimeFormat, c.get("key").header.Get("Last-Modified"))
	if err != nil {
		t.Fatal(err)
	}
	tag, other := tagOf(body), `"00000000000000000000000000000000"`
	at := func(d time.Duration) string { return modified.Add(d).Format(http.TimeFormat) }
	for _, row := range []struct {
		header []string
		status int
	}{
		{[]string{"If-Match", tag}, 200},
		{[]string{"If-Match", strings.Trim(tag, `"`)}, 200},
		{[]string{"If-Match", strings.ToLower(tag)}, 200},
		{[]string{"If-Match", other + ", " + tag}, 200},
		{[]string{"If-Match", "*"}, 200},
		{[]string{"If-Match", other}, 412},
		{[]string{"If-None-Match", tag}, 304},
		{[]string{"If-None-Match", strings.ToLower(strings.Trim(tag, `"`))}, 304},
		{[]string{"If-None-Match", other}, 200},
		{[]string{"If-None-Match", "*"}, 304},
		{[]string{"If-Modified-Since", at(0)}, 304},
		{[]string{"If-Modified-Since", at(time.Hour)}, 304},
		{[]string{"If-Modified-Since", at(-time.Second)}, 200},
		{[]string{"If-Unmodified-Since", at(0)}, 200},
		{[]string{"If-Unmodified-Since", at(-time.Second)}, 412},
		{[]string{"If-Modified-Since", "yesterday"}, 200},
		{[]string{"If-Unmodified-Since", "yesterday"}, 200},
		{[]string{"If-Match", tag, "If-None-Match", tag}, 304},
		{[]string{"If-Match", other, "If-None-Match", tag}, 412},
		{[]string{"If-Match", tag, "If-Modified-Since", at(0)}, 304},
		{[]string{"If-None-Match", other, "If-Modified-Since", at(0)}, 200},
		{[]string{"If-Unmodified-Since", at(-time.Second), "If-None-Match", tag}, 412},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			a := c.want(row.status, withHeader(c.object(method, "key", ""), row.header...))
			if row.status == 304 {
				a.wantHeader(t, "ETag", tag)
				if len(a.body) != 0 {
					t.Errorf("%v: a 304 with a body", row.header)
				}
			}
			if row.status == 412 && a.code(t) != "PreconditionFailed" {
				t.Errorf("%v: code %s", row.header, a.code(t))
			}
		}
	}
}

func TestAnOpenGetKeepsItsVersion(t *testing.T) {
	c := start(t, ossemu.Config{})
	first := pattern(32 << 20) // more than socket buffers hold
	c.put("key", first)
	resp, err := c.http.Do(c.request(c.object("GET", "key", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	c.put("key", []byte("second"))
	c.want(204, c.object("DELETE", "key", ""))
	var got bytes.Buffer
	if _, err := got.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), first) {
		t.Error("the body is not that of the version that was opened")
	}
}

func TestSymlinks(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(1234)
	target := "dir/tar get+ü"
	c.put(target, body)
	link := func(encoded string) {
		t.Helper()
		a := c.want(200, withHeader(c.object("PUT", "link", "symlink"), "x-oss-symlink-target", encoded))
		if a.header.Get("ETag") == "" {
			t.Error("no tag")
		}
	}
	for _, encoded := range []string{"dir/tar+get%2B%C3%BC", "dir%2Ftar%20get%2B%C3%BC"} {
		link(encoded)
		a := c.want(200, c.object("GET", "link", "symlink"))
		a.wantHeader(t, "x-oss-symlink-target", "dir%2Ftar%20get%2B%C3%BC", "Content-Length", "0")
		a = c.get("link")
		a.wantHeader(t, "x-oss-object-type", "Symlink", "ETag", tagOf(body), "Content-Length", "1234")
		if !bytes.Equal(a.body, body) {
			t.Error("the link does not give the target's bytes")
		}
	}
	c.want(200, c.object("HEAD", "link", "")).wantHeader(t, "Content-Length", "1234", "x-oss-object-type", "Symlink")
	c.want(200, c.object("HEAD", "link", "objectMeta")).wantHeader(t, "Content-Length", strconv.Itoa(len(target)), "x-oss-object-type", "Symlink")
	part := c.want(206, withHeader(c.object("GET", "link", ""), "Range", "bytes=4-9"))
	if !bytes.Equal(part.body, body[4:10]) {
		t.Error("a range of a link differs")
	}

	c.want(200, withHeader(c.object("PUT", "broken", "symlink"), "x-oss-symlink-target", "nowhere"))
	c.refused(404, "SymlinkTargetNotExist", c.object("GET", "broken", "")).wantHeader(t, "x-oss-ec", "0026-00000012")
	c.want(200, withHeader(c.object("PUT", "chain", "symlink"), "x-oss-symlink-target", "link"))
	c.refused(400, "InvalidTargetType", c.object("GET", "chain", ""))
	c.refused(400, "NotSymlink", c.object("GET", target, "symlink"))
	c.refused(404, "NoSuchKey", c.object("GET", "nothing", "symlink"))
	c.refused(400, "MissingArgument", c.object("PUT", "bad", "symlink")).wantHeader(t, "x-oss-ec", "0043-00000001")
	c.refused(409, "FileAlreadyExists", withHeader(c.object("PUT", "link", "symlink"), "x-oss-symlink-target", "a", "x-oss-forbid-overwrite", "true"))
}

func TestTagging(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	modified := c.get("key").header.Get("Last-Modified")
	set := `<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>b c</Key><Value></Value></Tag></TagSet></Tagging>`
	c.want(200, withBody(c.object("PUT", "key", "tagging"), set))
	type tag struct{ Key, Value string }
	var got struct {
		Tags []tag `xml:"TagSet>Tag"`
	}
	c.want(200, c.object("GET", "key", "tagging")).decode(t, &got)
	if d := cmp.Diff([]tag{{"a", "1"}, {"b c", ""}}, got.Tags); d != "" {
		t.Error(d)
	}
	c.get("key").wantHeader(t, "x-oss-tagging-count", "2", "Last-Modified", modified, "ETag", tagOf([]byte("x")))
	c.want(204, c.object("DELETE", "key", "tagging"))
	c.get("key").wantHeader(t, "x-oss-tagging-count", "-")
	c.refused(400, "MalformedXML", withBody(c.object("PUT", "key", "tagging"), "<Tagging>"))
	c.refused(400, "InvalidTag", withBody(c.object("PUT", "key", "tagging"), strings.Replace(set, "b c", "a&amp;b", 1)))
	eleven := "<Tagging><TagSet>"
	for i := range 11 {
		eleven += fmt.Sprintf("<Tag><Key>k%d</Key><Value/></Tag>", i)
	}
	c.refused(400, "InvalidTag", withBody(c.object("PUT", "key", "tagging"), eleven+"</TagSet></Tagging>"))
	c.refused(404, "NoSuchKey", c.object("GET", "nothing", "tagging"))
}

func TestRestoreOfWhatNeedsNone(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("standard", nil)
	c.refused(400, "OperationNotSupported", c.object("POST", "standard", "restore"))
	c.want(200, withHeader(c.object("PUT", "archived", ""), "x-oss-storage-class", "Archive"))
	c.want(200, c.object("POST", "archived", "restore"))
}

func TestCompressionOnTheFly(t *testing.T) {
	c := start(t, ossemu.Config{Gzip: true})
	text := bytes.Repeat([]byte("all work and no play "), 200)
	c.want(200, call{method: "PUT", bucket: c.emu.Bucket, key: "text", body: text, header: map[string]string{"Content-Type": "text/plain"}})
	c.want(200, call{method: "PUT", bucket: c.emu.Bucket, key: "small", body: text[:1000], header: map[string]string{"Content-Type": "text/plain"}})
	c.put("binary", text)
	a := c.want(200, withHeader(c.object("GET", "text", ""), "Accept-Encoding", "gzip"))
	a.wantHeader(t, "Content-Encoding", "gzip", "Content-Length", "-", "ETag", "-")
	if len(a.body) >= len(text) {
		t.Errorf("%d bytes of %d", len(a.body), len(text))
	}
	if got := gunzip(t, a.body); !bytes.Equal(got, text) {
		t.Error("other text came back")
	}
	for _, key := range []string{"small", "binary"} {
		c.want(200, withHeader(c.object("GET", key, ""), "Accept-Encoding", "gzip")).wantHeader(t, "Content-Encoding", "-")
	}
	c.want(206, withHeader(c.object("GET", "text", ""), "Accept-Encoding", "gzip", "Range", "bytes=0-1999")).wantHeader(t, "Content-Encoding", "-")
	c.want(200, c.object("GET", "text", "")).wantHeader(t, "Content-Encoding", "-")
}
