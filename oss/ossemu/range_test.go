package ossemu_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func gunzip(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// span is what a range request gives: the bytes from to, or the whole object
// with status 200, or 416.
type span struct {
	status   int
	from, to int
}

func TestRanges(t *testing.T) {
	const size = 1000
	whole, none := span{200, 0, size - 1}, span{416, 0, 0}
	part := func(from, to int) span { return span{206, from, to} }
	for _, row := range []struct {
		header                 string
		lenient, standard, rfc span
	}{
		{"bytes=0-99", part(0, 99), part(0, 99), part(0, 99)},
		{"bytes=0-0", part(0, 0), part(0, 0), part(0, 0)},
		{"bytes=999-999", part(999, 999), part(999, 999), part(999, 999)},
		{"bytes=0-999", part(0, 999), part(0, 999), part(0, 999)},
		{"bytes=0-", part(0, 999), part(0, 999), part(0, 999)},
		{"bytes=500-", part(500, 999), part(500, 999), part(500, 999)},
		{"bytes=-1", part(999, 999), part(999, 999), part(999, 999)},
		{"bytes=-1000", part(0, 999), part(0, 999), part(0, 999)},
		{"bytes=0-1000", whole, part(0, 999), part(0, 999)},
		{"bytes=999-5000", whole, part(999, 999), part(999, 999)},
		{"bytes=1-99999999999999999999", whole, part(1, 999), part(1, 999)},
		{"bytes=1000-", whole, none, none},
		{"bytes=1000-2000", whole, none, none},
		{"bytes=99999999999999999999-", whole, none, none},
		{"bytes=-1001", whole, part(0, 999), part(0, 999)},
		{"bytes=-0", whole, none, none},
		{"bytes=9-8", whole, whole, whole},
		{"byte=0-1", whole, whole, whole},
		{"bytes=", whole, whole, whole},
		{"bytes=-", whole, whole, whole},
		{"bytes=a-b", whole, whole, whole},
		{"bytes=1", whole, whole, whole},
		{"bytes=+1-2", whole, whole, whole},
		{"bytes=0-1,5-6", part(0, 1), part(0, 1), part(0, 1)},
		{"bytes= 3-4", part(3, 4), part(3, 4), part(3, 4)},
	} {
		t.Run(row.header, func(t *testing.T) {
			c := rangeClient(t)
			c.check(row.header, "", size, row.lenient)
			c.check(row.header, "standard", size, row.standard)
			c.check(row.header, "s3", size, row.rfc)
		})
	}
}

func TestRangesOfAnEmptyObject(t *testing.T) {
	whole, none := span{200, 0, -1}, span{416, 0, 0}
	for _, row := range []struct {
		header                 string
		lenient, standard, rfc span
	}{
		{"bytes=0-", whole, whole, none},
		{"bytes=0-5", whole, whole, none},
		{"bytes=1-", whole, none, none},
		{"bytes=-5", whole, whole, none},
	} {
		t.Run(row.header, func(t *testing.T) {
			c := rangeClient(t)
			c.check(row.header, "", 0, row.lenient)
			c.check(row.header, "standard", 0, row.standard)
			c.check(row.header, "s3", 0, row.rfc)
		})
	}
}

type ranger struct{ *client }

func rangeClient(t *testing.T) ranger {
	c := start(t, ossemu.Config{})
	c.want(200, withHeader(call{method: "PUT", bucket: c.emu.Bucket, query: "acl"}, "x-oss-acl", "public-read"))
	return ranger{c}
}

// check asks for a range of an object of the given size.
func (c ranger) check(header, behavior string, size int, want span) {
	c.t.Helper()
	key := strconv.Itoa(size)
	body := pattern(size)
	c.emu.Put(key, body)
	q := withHeader(c.object("GET", key, ""), "Range", header)
	switch behavior {
	case "standard":
		q.header["x-oss-range-behavior"] = behavior
	case "s3":
		// A public object asked for in the other dialect.
		q.anonymous = true
		q.header["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"
	}
	a := c.do(q)
	name := fmt.Sprintf("%s, %q, %d bytes", header, behavior, size)
	if a.err != nil || a.status != want.status {
		c.t.Fatalf("%s: status %d, want %d: %v\n%s", name, a.status, want.status, a.err, a.body)
	}
	if want.status == 416 {
		if got := a.code(c.t); got != "InvalidRange" {
			c.t.Errorf("%s: code %s", name, got)
		}
		return
	}
	if !bytes.Equal(a.body, body[want.from:want.to+1]) {
		c.t.Errorf("%s: other bytes", name)
	}
	contentRange := "-"
	if want.status == 206 {
		contentRange = fmt.Sprintf("bytes %d-%d/%d", want.from, want.to, size)
	}
	a.wantHeader(c.t, "Content-Range", contentRange, "Content-Length", strconv.Itoa(want.to-want.from+1), "ETag", tagOf(body),
		"x-oss-hash-crc64ecma", crcOf(body))
}
