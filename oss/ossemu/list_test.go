package ossemu_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

type listed struct {
	Name, Prefix, Marker, Delimiter, EncodingType, StartAfter        string
	NextMarker, ContinuationToken, NextContinuationToken             *string
	MaxKeys                                                          int
	KeyCount                                                         *int
	IsTruncated                                                      bool
	Contents                                                         []listedObject
	CommonPrefixes                                                   []struct{ Prefix string }
	KeyMarker, VersionIDMarker, NextKeyMarker, NextVersionIDMarkerID string
}

type listedObject struct {
	Key, LastModified, ETag, Type, StorageClass string
	Size                                        int64
	Owner                                       *struct{ ID, DisplayName string }
}

func (l listed) names() (names []string) {
	for _, o := range l.Contents {
		names = append(names, o.Key)
	}
	for _, p := range l.CommonPrefixes {
		names = append(names, p.Prefix)
	}
	return names
}

func (c *client) list(query string) listed {
	c.t.Helper()
	var l listed
	c.want(200, c.object("GET", "", query)).decode(c.t, &l)
	return l
}

func TestAListingTellsWhatHeadTells(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", pattern(10))
	c.want(200, withHeader(c.object("PUT", "link", "symlink"), "x-oss-symlink-target", "key"))
	for _, query := range []string{"", "list-type=2", "list-type=2&fetch-owner=true"} {
		l := c.list(query)
		if len(l.Contents) != 2 {
			t.Fatalf("%q: %+v", query, l)
		}
		o := l.Contents[0]
		if o.ETag != c.get("key").header.Get("ETag") || o.Size != 10 || o.Type != "Normal" || o.StorageClass != "Standard" {
			t.Errorf("%q: %+v", query, o)
		}
		if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$`).MatchString(o.LastModified) {
			t.Errorf("time %q", o.LastModified)
		}
		if wantOwner := query != "list-type=2"; (o.Owner != nil) != wantOwner {
			t.Errorf("%q: owner %v", query, o.Owner)
		}
		if link := l.Contents[1]; link.Type != "Symlink" || link.Size != int64(len("key")) {
			t.Errorf("%q: link %+v", query, link)
		}
	}
	body := string(c.want(200, c.object("GET", "", "")).body)
	if !strings.Contains(body, `<ETag>"`) {
		t.Error("quotes of a tag must stay as they are")
	}
}

func TestListingPagesVersion1(t *testing.T) {
	c := start(t, ossemu.Config{})
	for i := range 250 {
		c.emu.Put(fmt.Sprintf("k%03d", i), nil)
	}
	l := c.list("")
	if l.MaxKeys != 100 || len(l.Contents) != 100 || !l.IsTruncated || l.NextMarker == nil || *l.NextMarker != "k099" {
		t.Errorf("default page: %d of %d, next %v", len(l.Contents), l.MaxKeys, l.NextMarker)
	}
	l = c.list("marker=k099&max-keys=1000")
	if len(l.Contents) != 150 || l.IsTruncated || l.NextMarker != nil || l.Marker != "k099" {
		t.Errorf("last page: %d, truncated %v, next %v", len(l.Contents), l.IsTruncated, l.NextMarker)
	}
	// Bare names, as some clients send them.
	if l = c.list("marker&prefix&max-keys=1000&delimiter"); len(l.Contents) != 250 {
		t.Errorf("bare parameters: %d", len(l.Contents))
	}
	for _, bad := range []string{"max-keys=0", "max-keys=1001", "max-keys=x", "list-type=ext-v1", "encoding-type=base64", "list-type=2&continuation-token=%21"} {
		c.refused(400, "InvalidArgument", c.object("GET", "", bad))
	}
}

func TestListingPagesVersion2(t *testing.T) {
	c := start(t, ossemu.Config{})
	keys := []string{"a", "a/", "a//b", "a/b", "a/c/d", "b+c d", "b/x", "ü"}
	for _, key := range keys {
		c.emu.Put(key, nil)
	}
	want := map[string][]string{
		"":                                  keys,
		"prefix=a/":                         {"a/", "a//b", "a/b", "a/c/d"},
		"delimiter=/":                       {"a", "b+c d", "ü", "a/", "b/"},
		"delimiter=/&prefix=a/":             {"a/", "a/b", "a//", "a/c/"},
		"delimiter=%2F&prefix=a/c/":         {"a/c/d"},
		"start-after=%00&encoding-type=url": {"a", "a%2F", "a%2F%2Fb", "a%2Fb", "a%2Fc%2Fd", "b%2Bc%20d", "b%2Fx", "%C3%BC"},
		"start-after=a/b":                   {"a/c/d", "b+c d", "b/x", "ü"},
		"delimiter=/&start-after=a/":        {"b+c d", "ü", "b/"},
		"prefix=nothing":                    nil,
		"start-after=zzzz&prefix=a":         nil,
		"delimiter=c&prefix=b%2B":           {"b+c"},
		"prefix=b%2Bc%20d&fetch-owner=yes":  {"b+c d"},
	}
	for query, names := range want {
		for _, size := range []int{1, 2, 1000} {
			var contents, prefixes []string
			token := ""
			for {
				q := fmt.Sprintf("list-type=2&max-keys=%d&%s", size, query)
				if token != "" {
					q += "&continuation-token=" + token
				}
				l := c.list(q)
				if n := len(l.Contents) + len(l.CommonPrefixes); l.KeyCount == nil || *l.KeyCount != n || n > size {
					t.Fatalf("%s: %d entries, KeyCount %v", q, n, l.KeyCount)
				}
				if token != "" && (l.ContinuationToken == nil || *l.ContinuationToken != token) {
					t.Errorf("%s: token not repeated", q)
				}
				for _, o := range l.Contents {
					contents = append(contents, o.Key)
				}
				for _, p := range l.CommonPrefixes {
					prefixes = append(prefixes, p.Prefix)
				}
				if (l.NextContinuationToken != nil) != l.IsTruncated {
					t.Fatalf("%s: truncated %v, next %v", q, l.IsTruncated, l.NextContinuationToken)
				}
				if !l.IsTruncated {
					break
				}
				token = *l.NextContinuationToken
				if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(token) {
					t.Fatalf("token %q has letters that a URL escapes", token)
				}
			}
			if d := cmp.Diff(names, append(contents, prefixes...)); d != "" {
				t.Errorf("%q by %d: %s", query, size, d)
			}
		}
	}
}

func TestEncodingOfNames(t *testing.T) {
	c := start(t, ossemu.Config{})
	key := "a b+c/%41&<\x01\n>\"ü"
	c.emu.Put(key, nil)
	c.emu.Put("dir one/+x", nil)
	for _, version := range []string{"", "list-type=2&"} {
		l := c.list(version + "encoding-type=url&delimiter=%2F&prefix=&max-keys=1")
		if l.EncodingType != "url" || l.Delimiter != "%2F" {
			t.Errorf("%+v", l)
		}
		l = c.list(version + "encoding-type=url&prefix=" + url.QueryEscape("a b+"))
		got := l.Contents[0].Key
		if strings.ContainsAny(got, "+ &<") {
			t.Errorf("encoded key %q", got)
		}
		for name, decode := range map[string]func(string) (string, error){"query": url.QueryUnescape, "path": url.PathUnescape} {
			if back, err := decode(got); err != nil || back != key {
				t.Errorf("%s decoding gives %q, %v", name, back, err)
			}
		}
		if want := "a%20b%2B"; l.Prefix != want {
			t.Errorf("prefix %q", l.Prefix)
		}
		plain := c.list(version + "prefix=dir")
		if plain.EncodingType != "" || plain.Contents[0].Key != "dir one/+x" {
			t.Errorf("without encoding: %+v", plain)
		}
	}
	raw := string(c.want(200, c.object("GET", "", "prefix=a")).body)
	if want := "<Key>a b+c/%41&amp;&lt;&#x1;&#xA;&gt;\"ü</Key>"; !strings.Contains(raw, want) {
		t.Errorf("no %s in %s", want, raw)
	}
}

func TestListingOfVersions(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.emu.Put("a", nil)
	c.emu.Put("b", nil)
	var l struct {
		IsTruncated                        bool
		NextKeyMarker, NextVersionIdMarker string
		Version                            []struct {
			Key, VersionId string
			IsLatest       bool
		}
	}
	c.want(200, c.object("GET", "", "versions&max-keys=1")).decode(t, &l)
	if len(l.Version) != 1 || l.Version[0].VersionId != "null" || !l.Version[0].IsLatest || !l.IsTruncated || l.NextKeyMarker != "a" {
		t.Errorf("%+v", l)
	}
}

func TestTheOtherDialectHasFullPagesAndItsOwnNames(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.want(200, withHeader(call{method: "PUT", bucket: c.emu.Bucket, query: "acl"}, "x-oss-acl", "public-read-write"))
	for i := range 150 {
		c.emu.Put(fmt.Sprint("k", i), nil)
	}
	s3 := func(method, key, query string, header ...string) call {
		q := withHeader(c.object(method, key, query), append(header, "x-amz-content-sha256", "UNSIGNED-PAYLOAD")...)
		q.anonymous = true
		return q
	}
	var l listed
	c.want(200, s3("GET", "", "")).decode(t, &l)
	if len(l.Contents) != 150 || l.MaxKeys != 1000 || l.Contents[0].StorageClass != "STANDARD" {
		t.Errorf("%d entries of %d, class %q", len(l.Contents), l.MaxKeys, l.Contents[0].StorageClass)
	}
	c.want(200, s3("GET", "", "list-type=2&max-keys=5000")).decode(t, &l)
	a := c.want(200, withBody(s3("PUT", "object", "", "x-amz-meta-Colour", "blue", "x-amz-storage-class", "GLACIER", "Content-Encoding", "gzip"), "x"))
	if a.header.Get("x-amz-request-id") == "" || a.header.Get("x-oss-request-id") != "" {
		t.Errorf("request id: %v", a.header)
	}
	a = c.want(200, c.object("GET", "object", ""))
	a.wantHeader(t, "x-oss-meta-colour", "blue", "x-oss-storage-class", "Archive", "Content-Encoding", "gzip")
	c.want(200, s3("GET", "object", "")).wantHeader(t, "x-amz-meta-colour", "blue", "x-oss-meta-colour", "-", "x-amz-storage-class", "GLACIER")
	c.refused(404, "NoSuchKey", s3("GET", "nothing", ""))
}
