package ossemu_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func (c *client) faults(faults ...ossemu.Fault) {
	c.t.Helper()
	if err := c.emu.Server.SetFaults(faults); err != nil {
		c.t.Fatal(err)
	}
}

// statuses sends a call n times.
func (c *client) statuses(n int, q call) (got []int) {
	c.t.Helper()
	for range n {
		got = append(got, c.do(q).status)
	}
	return got
}

func TestWhoseTurnItIs(t *testing.T) {
	c := start(t, ossemu.Config{})
	for _, key := range []string{"a/1", "a/2", "b/1"} {
		c.put(key, []byte("x"))
	}
	get := func(key string) call { return c.object("GET", key, "") }
	broken := ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultError, Code: "ServiceUnavailable"}
	with := func(change func(*ossemu.Fault)) ossemu.Fault { f := broken; change(&f); return f }

	c.faults(broken)
	c.refused(503, "ServiceUnavailable", get("a/1"))
	c.want(200, c.object("HEAD", "a/1", ""))
	c.faults(with(func(f *ossemu.Fault) { f.Operation = "*" }))
	c.refused(503, "ServiceUnavailable", c.object("HEAD", "a/1", ""))
	c.refused(503, "ServiceUnavailable", c.object("GET", "", "list-type=2"))
	c.faults(with(func(f *ossemu.Fault) { f.KeyPrefix = "a/" }))
	c.want(503, get("a/1"))
	c.want(200, get("b/1"))
	c.faults(with(func(f *ossemu.Fault) { f.KeyContains = "/1" }))
	c.want(503, get("b/1"))
	c.want(200, get("a/2"))
	c.faults(with(func(f *ossemu.Fault) { f.Count = 2 }))
	if d := cmp.Diff([]int{503, 503, 200, 200}, c.statuses(4, get("a/1"))); d != "" {
		t.Error(d)
	}
	c.faults(with(func(f *ossemu.Fault) { f.Skip = 1; f.Every = 3 }))
	if d := cmp.Diff([]int{200, 200, 200, 503, 200, 200, 503}, c.statuses(7, get("a/1"))); d != "" {
		t.Error(d)
	}
	c.faults(with(func(f *ossemu.Fault) { f.Probability = 0.5 }))
	first := c.statuses(60, get("a/1"))
	c.faults(with(func(f *ossemu.Fault) { f.Probability = 0.5 }))
	if d := cmp.Diff(first, c.statuses(60, get("a/1"))); d != "" {
		t.Error("chance is not repeatable:", d)
	}
	if n := strings.Count(fmt.Sprint(first), "503"); n < 15 || n > 45 {
		t.Errorf("%d of 60 at a probability of a half", n)
	}
	c.faults(with(func(f *ossemu.Fault) { f.Count = 1 }), with(func(f *ossemu.Fault) { f.Code = "QpsLimitExceeded" }))
	if d := cmp.Diff([]int{503, 429, 429}, c.statuses(3, get("a/1"))); d != "" {
		t.Error(d)
	}
	c.faults()
	c.want(200, get("a/1"))
}

func TestEveryErrorThatCanBeInjected(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	for code, status := range map[string]int{
		"QpsLimitExceeded": 429, "TotalQpsLimitExceeded": 503, "DownloadTrafficRateLimitExceeded": 503, "UploadTrafficRateLimitExceeded": 503,
		"MetaOperationQpsLimitExceeded": 503, "ActiveRequestLimitExceeded": 503, "ServiceUnavailable": 503, "InternalError": 500,
		"RequestTimeout": 400, "AccessDenied": 403, "RequestTimeTooSkewed": 403, "SignatureDoesNotMatch": 403, "InvalidAccessKeyId": 403,
		"SecurityTokenExpired": 403, "NoSuchKey": 404,
	} {
		c.faults(ossemu.Fault{Kind: ossemu.FaultError, Code: code})
		a := c.refused(status, code, c.object("GET", "key", ""))
		if a.header.Get("x-oss-request-id") == "" || a.header.Get("Date") == "" {
			t.Errorf("%s: headers %v", code, a.header)
		}
		c.refused(status, code, c.object("HEAD", "key", ""))
	}
	c.faults(ossemu.Fault{Kind: ossemu.FaultError, Code: "Novelty", Status: 418})
	c.refused(418, "Novelty", c.object("GET", "key", ""))
	c.faults(ossemu.Fault{Kind: ossemu.FaultError, Code: "InternalError", Status: 502})
	c.refused(502, "InternalError", c.object("GET", "key", ""))
}

func TestAnErrorReachesAClientThatIsUploading(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.faults(ossemu.Fault{Operation: "PutObject", Kind: ossemu.FaultError, Code: "ServiceUnavailable"})
	q := c.object("PUT", "key", "")
	q.body = pattern(20 << 20) // more than socket buffers hold
	c.refused(503, "ServiceUnavailable", q)
	if len(c.emu.Keys("")) != 0 {
		t.Error("the object was stored")
	}
}

func TestResets(t *testing.T) {
	c := start(t, ossemu.Config{})
	body := pattern(4 << 20)
	c.put("key", body)
	c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultReset, Count: 1})
	conn, err := c.dialRaw(c.object("GET", "key", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.conn.Close()
	if _, err := conn.once("200"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultResetBody, Bytes: 1000})
	if conn, err = c.dialRaw(c.object("GET", "key", "")); err != nil {
		t.Fatal(err)
	}
	defer conn.conn.Close()
	if _, err := conn.once("200"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset within the body: %v", err)
	}
	c.faults(ossemu.Fault{Operation: "PutObject", Kind: ossemu.FaultReset})
	if a := c.do(withBody(c.object("PUT", "new", ""), "x")); a.err == nil {
		t.Errorf("status %d after a reset", a.status)
	}
	c.faults()
	c.refused(404, "NoSuchKey", c.object("GET", "new", ""))
	if got := c.get("key").body; !bytes.Equal(got, body) {
		t.Error("content differs")
	}
	if n := c.emu.Server.Stats().Operations["GetObject"].Status[0]; n != 1 {
		t.Errorf("%d requests without an answer", n)
	}
}

func TestTruncatedBodies(t *testing.T) {
	c := start(t, ossemu.Config{})
	for _, size := range []int{1000, 1 << 20} {
		body := pattern(size)
		c.put("key", body)
		for _, row := range []struct{ bytes, want int }{{0, size / 2}, {7, 7}} {
			c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultTruncate, Bytes: int64(row.bytes)})
			a := c.do(c.object("GET", "key", ""))
			if a.status != 200 || !errors.Is(a.err, io.ErrUnexpectedEOF) || !bytes.Equal(a.body, body[:row.want]) {
				t.Errorf("%d of %d: status %d, %d bytes, %v", row.want, size, a.status, len(a.body), a.err)
			}
		}
	}
	c.faults(ossemu.Fault{Operation: "ListObjectsV2", Kind: ossemu.FaultTruncate})
	if a := c.do(c.object("GET", "", "list-type=2")); !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated listing: %v", a.err)
	}
}

func TestStallsAndSlowAnswers(t *testing.T) {
	const delay = 150 * time.Millisecond
	c := start(t, ossemu.Config{})
	body := pattern(300_000)
	c.put("key", body)
	for _, kind := range []ossemu.FaultKind{ossemu.FaultStall, ossemu.FaultSlowFirstByte} {
		c.faults(ossemu.Fault{Operation: "GetObject", Kind: kind, Delay: delay, Bytes: 5000})
		began := time.Now()
		resp, err := c.http.Do(c.request(c.object("GET", "key", "")))
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 5000)
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatal(err)
		}
		beforeRest := time.Since(began)
		rest, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only read
		if !bytes.Equal(append(first, rest...), body) {
			t.Errorf("%s: content differs", kind)
		}
		// Only the least is asserted: a busy machine may take longer.
		if took := time.Since(began); took < delay {
			t.Errorf("%s: took %v", kind, took)
		}
		if kind == ossemu.FaultSlowFirstByte && beforeRest < delay {
			t.Errorf("%s: the first bytes came after %v", kind, beforeRest)
		}
	}
}

func TestAStallEndsWithItsClientAndWithTheServer(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", pattern(300_000))
	c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultStall, Delay: time.Hour})
	for range 2 {
		resp, err := c.http.Do(c.request(c.object("GET", "key", "")))
		if err != nil {
			t.Fatal(err)
		}
		// One client goes away, the other one's server does, when the test ends.
		if c.emu.Server.Stats().InFlight == 1 {
			_ = resp.Body.Close() // only read
			for c.emu.Server.Stats().InFlight != 0 {
				time.Sleep(time.Millisecond)
			}
		} else {
			defer resp.Body.Close()
		}
	}
}

func TestSpoiledContentAndHeaders(t *testing.T) {
	c := start(t, ossemu.Config{})
	for _, size := range []int{1, 1000, 200_000} {
		body := pattern(size)
		c.put("key", body)
		c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultCorrupt})
		a := c.want(200, c.object("GET", "key", ""))
		a.wantHeader(t, "ETag", tagOf(body), "x-oss-hash-crc64ecma", crcOf(body))
		differ := 0
		for i := range body {
			if a.body[i] != body[i] {
				differ++
			}
		}
		if want := (size + 4095) / 4096; differ != want {
			t.Errorf("%d bytes of %d differ, want %d", differ, size, want)
		}
	}
	body := []byte("content")
	c.put("key", body)
	c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultWrongCRC})
	a := c.want(200, c.object("GET", "key", ""))
	a.wantHeader(t, "ETag", tagOf(body))
	if got := a.header.Get("x-oss-hash-crc64ecma"); got == crcOf(body) || got == "" || string(a.body) != "content" {
		t.Errorf("checksum %q of %q", got, a.body)
	}
	c.faults(ossemu.Fault{Kind: ossemu.FaultWrongETag})
	for _, q := range []call{c.object("GET", "key", ""), c.object("HEAD", "key", ""), withBody(c.object("PUT", "key", ""), "content")} {
		if got := c.want(200, q).header.Get("ETag"); got == tagOf(body) || len(got) != 34 {
			t.Errorf("%s: tag %q", q.method, got)
		}
	}
	c.faults()
	if got := c.emu.Get("key"); !bytes.Equal(got, body) {
		t.Error("a fault changed what is stored")
	}
}

func TestStaleListings(t *testing.T) {
	c := start(t, ossemu.Config{Buckets: []string{"bucket-one", "bucket-two"}})
	c.put("old", nil)
	c.faults(ossemu.Fault{Kind: ossemu.FaultStaleList})
	c.put("new", nil)
	c.want(204, c.object("DELETE", "old", ""))
	for _, query := range []string{"", "list-type=2"} {
		if d := cmp.Diff([]string{"old"}, c.list(query).names()); d != "" {
			t.Error(d)
		}
	}
	c.want(200, c.object("HEAD", "new", "")) // only listings lag
	c.want(200, call{method: "PUT", bucket: "bucket-three"})
	c.want(200, call{method: "GET", bucket: "bucket-three"})
	c.faults(ossemu.Fault{Kind: ossemu.FaultStaleList, Delay: time.Nanosecond})
	c.put("newer", nil)
	if d := cmp.Diff([]string{"new", "newer"}, c.list("").names()); d != "" {
		t.Error("a lag that is over:", d)
	}
	c.faults()
	if d := cmp.Diff([]string{"new", "newer"}, c.list("").names()); d != "" {
		t.Error(d)
	}
}

func TestWorkThatIsDoneAndNotConfirmed(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.faults(ossemu.Fault{Operation: "PutObject", Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError"})
	c.refused(500, "InternalError", withBody(c.object("PUT", "one", ""), "first"))
	c.faults(ossemu.Fault{Operation: "PutObject", Kind: ossemu.FaultLostReply})
	if a := c.do(withBody(c.object("PUT", "two", ""), "second")); a.err == nil {
		t.Errorf("status %d", a.status)
	}
	c.faults()
	if one, two := c.get("one"), c.get("two"); string(one.body) != "first" || string(two.body) != "second" {
		t.Errorf("stored %q and %q", one.body, two.body)
	}
	id := c.begin("parts")
	tag := c.part("parts", id, 1, []byte("part"))
	c.faults(ossemu.Fault{Operation: "CompleteMultipartUpload", Kind: ossemu.FaultErrorAfterCommit, Code: "ServiceUnavailable", Count: 1})
	c.refused(503, "ServiceUnavailable", c.complete("parts", id, 1, tag))
	c.refused(404, "NoSuchUpload", c.complete("parts", id, 1, tag))
	if got := c.get("parts").body; string(got) != "part" {
		t.Errorf("stored %q", got)
	}
	c.faults(ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultErrorAfterCommit, Code: "InternalError"})
	c.refused(500, "InternalError", c.object("GET", "one", ""))
}

func TestSlowAccept(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", nil)
	const delay = 100 * time.Millisecond
	c.faults(ossemu.Fault{Kind: ossemu.FaultSlowAccept, Delay: delay, Count: 1})
	began := time.Now()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.emu.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, c.head(c.object("HEAD", "key", ""), "/test-bucket/key", "127.0.0.1"))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("served after %v", took)
	}
	if n := c.emu.Server.Stats().Faults[ossemu.FaultSlowAccept]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestFaultsThatMakeNoSenseAreRefused(t *testing.T) {
	c := start(t, ossemu.Config{})
	kept := ossemu.Fault{Operation: "GetObject", Kind: ossemu.FaultReset}
	c.faults(kept)
	for name, f := range map[string]ossemu.Fault{
		"no kind":           {},
		"unknown kind":      {Kind: "explode"},
		"unknown operation": {Kind: ossemu.FaultReset, Operation: "GetThing"},
		"unknown code":      {Kind: ossemu.FaultError, Code: "Whatever"},
		"status":            {Kind: ossemu.FaultError, Code: "Whatever", Status: 99},
		"probability":       {Kind: ossemu.FaultReset, Probability: 2},
		"no delay":          {Kind: ossemu.FaultStall},
		"negative count":    {Kind: ossemu.FaultReset, Count: -1},
	} {
		if err := c.emu.Server.SetFaults([]ossemu.Fault{f}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if d := cmp.Diff([]ossemu.Fault{kept}, c.emu.Server.Faults()); d != "" {
		t.Error("a refused list replaced the one in force:", d)
	}
}
