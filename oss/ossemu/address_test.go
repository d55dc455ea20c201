package ossemu_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestStylesOfAddressing(t *testing.T) {
	c := start(t, ossemu.Config{
		ServiceDomains: []string{"oss.test", "ossemu"},
		CNames:         map[string]string{"data.example.com": "test-bucket"},
	})
	c.put("dir/key", []byte("content"))
	// Of a host name it does not matter how it is written, nor its port.
	for _, host := range []string{"test-bucket.oss.test", "test-bucket.OSS.test:80", "test-bucket.localhost", "test-bucket.ossemu:9000", "data.example.com", "Data.Example.com:9000"} {
		a := c.want(200, call{method: "GET", bucket: "test-bucket", key: "dir/key", host: host})
		if string(a.body) != "content" {
			t.Errorf("%s: %q", host, a.body)
		}
		a = c.want(200, call{method: "GET", bucket: "test-bucket", key: "", host: host, query: "list-type=2"})
		if !strings.Contains(string(a.body), "<Key>dir/key</Key>") {
			t.Errorf("%s: %s", host, a.body)
		}
	}
	for _, host := range []string{"oss.test", "localhost:1234", "127.0.0.1", "10.1.2.3:80", "[::1]:9000", "ossemu"} {
		r := c.request(c.object("GET", "dir/key", ""))
		r.Host = host
		resp, err := c.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only read
		if resp.StatusCode != 200 {
			t.Errorf("path style at %s: status %d", host, resp.StatusCode)
		}
	}
	c.refused(404, "NoSuchBucket", call{method: "GET", bucket: "test-bucket", key: "dir/key", host: "unknown.example.com"})
	info := string(c.want(200, call{method: "GET", bucket: "test-bucket", host: "test-bucket.oss.test:9000", query: "bucketInfo"}).body)
	if !strings.Contains(info, "<ExtranetEndpoint>oss.test:9000</ExtranetEndpoint>") {
		t.Errorf("endpoint in %s", info)
	}
}

func TestPathStyleCanBeDenied(t *testing.T) {
	c := start(t, ossemu.Config{PathStyle: ossemu.PathStyleDeny, ServiceDomains: []string{"oss.test"}})
	c.refused(403, "SecondLevelDomainForbidden", c.object("GET", "key", ""))
	c.want(200, call{method: "GET"})
	c.want(200, call{method: "PUT", bucket: c.emu.Bucket, key: "key", host: c.emu.Bucket + ".oss.test"})
}

// speak sends text and returns the status of the answer.
func (c *client) speak(text string) int {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.emu.Endpoint, "http://"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close() // only read
	return resp.StatusCode
}

// head returns the request line with the given target and the headers of a
// signed call.
func (c *client) head(q call, target, host string) string {
	r := c.request(q)
	var b bytes.Buffer
	if err := r.Header.Write(&b); err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", q.method, target, host, b.String())
}

func TestTargetsAreTakenAsTheyAreSent(t *testing.T) {
	c := start(t, ossemu.Config{ServiceDomains: []string{"oss.test"}})
	for key, target := range map[string]string{
		"a/b":   "/test-bucket/a%2Fb",
		"a//b":  "/test-bucket/a//b",
		"./b":   "/test-bucket/./b",
		"..":    "/test-bucket/..",
		"a/../": "/test-bucket/a/../",
		"a b":   "/test-bucket/a%20b",
		"a+b":   "/test-bucket/a+b",
		"a%2Fb": "/test-bucket/a%252Fb",
		"z\x00": "/test-bucket/z%00",
		"v//x":  "http://test-bucket.oss.test/v//x",
		"p/q":   "http://oss.test/test-bucket/p/q",
	} {
		c.emu.Put(key, nil)
		host := "127.0.0.1"
		if strings.HasPrefix(target, "http:") {
			host = "proxy.example" // what a client behind a proxy says, or something else
		}
		if status := c.speak(c.head(c.object("HEAD", key, ""), target, host)); status != 200 {
			t.Errorf("%q as %s: status %d", key, target, status)
		}
	}
	if status := c.speak("GET * HTTP/1.1\r\nHost: x\r\n\r\n"); status/100 != 4 {
		t.Errorf("*: status %d", status)
	}
}

func TestKeysThatNoFileSystemHolds(t *testing.T) {
	c := start(t, ossemu.Config{})
	keys := []string{
		"a", "a/", "a/b", "a//b", "a//", "/a"[1:] + "/.", ".", "..", "../x", "a\\b", "con", "x y", "q?#[]", "%41", "ü€😀",
		"\x01\x02", "line\nbreak", "tab\t", strings.Repeat("k", 1023), strings.Repeat("n", 300) + "/" + strings.Repeat("m", 300),
	}
	for i, key := range keys {
		c.put(key, []byte(fmt.Sprint("content ", i)))
	}
	check := func() {
		t.Helper()
		for i, key := range keys {
			if got := string(c.get(key).body); got != fmt.Sprint("content ", i) {
				t.Errorf("%q: %q", key, got)
			}
		}
		got := map[string]bool{}
		for _, key := range c.emu.Keys("") {
			got[key] = true
		}
		want := map[string]bool{}
		for _, key := range keys {
			want[key] = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	check()
	c.emu.Restart()
	check()
	for _, bad := range []string{strings.Repeat("k", 1024), "/a", "\\a", "\xff\xfe"} {
		c.refused(400, "InvalidObjectName", withBody(c.object("PUT", bad, ""), "x"))
	}
	for _, key := range keys {
		c.want(204, c.object("DELETE", key, ""))
	}
	if left := c.emu.Keys(""); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
