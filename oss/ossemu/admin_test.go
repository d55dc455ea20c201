package ossemu_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// admin asks the administration address and reads the answer into v.
func (c *client) admin(status int, method, path, body string, v any) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.emu.AdminEndpoint+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, status, b)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(b, v); err != nil {
		c.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
}

func TestCounters(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", pattern(1000))
	c.get("key")
	c.want(206, withHeader(c.object("GET", "key", ""), "Range", "bytes=0-99"))
	c.refused(404, "NoSuchKey", c.object("GET", "nothing", ""))
	c.list("list-type=2")
	c.refused(405, "MethodNotAllowed", c.object("PATCH", "key", ""))
	var st ossemu.Stats
	c.admin(200, "GET", "/stats", "", &st)
	get := st.Operations["GetObject"]
	if d := cmp.Diff(map[int]int64{200: 1, 206: 1, 404: 1}, get.Status); d != "" || get.Requests != 3 {
		t.Error(get.Requests, d)
	}
	if put := st.Operations["PutObject"]; put.BytesIn != 1000 || put.BytesOut != 0 {
		t.Errorf("%+v", put)
	}
	if get.BytesOut < 1100 || get.BytesIn != 0 {
		t.Errorf("%+v", get)
	}
	if st.Operations["ListObjectsV2"].Requests != 1 || st.Operations["Unknown"].Requests != 1 {
		t.Errorf("%+v", st.Operations)
	}
	if st.Requests != 6 || st.MaxInFlight < 1 || st.InFlight != 0 || st.CPUSeconds <= 0 || st.RSSBytes < 1<<20 || st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	c.admin(200, "POST", "/stats/reset", "", nil)
	st = ossemu.Stats{}
	c.admin(200, "GET", "/stats", "", &st)
	if st.Requests != 0 || len(st.Operations) != 0 || time.Since(st.Since) > time.Minute {
		t.Errorf("after reset: %+v", st)
	}
}

// TestWhoHasAnAnswerFindsTheRequestCounted looks while most of an answer is still
// to be sent: the count must not wait for it.
func TestWhoHasAnAnswerFindsTheRequestCounted(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", pattern(64<<20)) // more than the sockets between the two hold
	resp, err := c.http.Do(c.request(c.object("GET", "key", "")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	st := c.emu.Server.Stats()
	if get := st.Operations["GetObject"]; get.Requests != 1 || get.Status[200] != 1 || st.InFlight != 1 {
		t.Errorf("%+v with %d in flight, want the one that is being answered", get, st.InFlight)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	for c.emu.Server.Stats().InFlight != 0 {
		time.Sleep(time.Millisecond)
	}
	if get := c.emu.Server.Stats().Operations["GetObject"]; get.Requests != 1 || get.BytesOut != 64<<20 {
		t.Errorf("%+v after it was answered", get)
	}
}

func TestFaultsCanBeSetWhileItRuns(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", []byte("x"))
	list := `[{"operation":"GetObject","key_prefix":"k","kind":"error","code":"InternalError","count":1},{"kind":"stall","operation":"HeadObject","delay":"1ms"}]`
	var got []ossemu.Fault
	c.admin(200, "PUT", "/faults", list, &got)
	want := []ossemu.Fault{
		{Operation: "GetObject", KeyPrefix: "k", Kind: ossemu.FaultError, Code: "InternalError", Count: 1},
		{Operation: "HeadObject", Kind: ossemu.FaultStall, Delay: time.Millisecond},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	c.refused(500, "InternalError", c.object("GET", "key", ""))
	got = nil
	c.admin(200, "GET", "/faults", "", &got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{`[{"kind":"error","cod":"x"}]`, `[{"kind":"nothing"}]`, `{}`, `[{"kind":"stall","delay":"soon"}]`} {
		c.admin(400, "PUT", "/faults", bad, nil)
	}
	c.admin(200, "DELETE", "/faults", "", nil)
	if left := c.emu.Server.Faults(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestTheShapeCanBeSetWhileItRuns(t *testing.T) {
	c := start(t, ossemu.Config{})
	seed, err := shape.Profile("seed")
	if err != nil {
		t.Fatal(err)
	}
	var got ossemu.Shape
	c.admin(200, "PUT", "/shape", `{"profile":"seed","download":"600MB"}`, &got)
	want := seed
	want.Download = 600e6
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	c.admin(200, "PATCH", "/shape", `{"get":{"median":"5ms"},"qps":2000}`, &got)
	want.Get.Median, want.QPS = 5*time.Millisecond, 2000
	if d := cmp.Diff(want, c.emu.Server.Shape()); d != "" {
		t.Error(d)
	}
	c.admin(200, "PUT", "/shape", `{"upload":"1GiB"}`, &got)
	if d := cmp.Diff(ossemu.Shape{Upload: 1 << 30}, c.emu.Server.Shape()); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{`{"downlod":"1MB"}`, `{"profile":"fast"}`, `{"get":{"median":"-1s"}}`, `{"download":"much"}`, `[]`} {
		c.admin(400, "PUT", "/shape", bad, nil)
	}
	c.admin(200, "GET", "/shape", "", &got)
	if d := cmp.Diff(ossemu.Shape{Upload: 1 << 30}, got); d != "" {
		t.Error("a refused shape came into force:", d)
	}
}

func TestCredentialsCanBeAddedWhileItRuns(t *testing.T) {
	c := start(t, ossemu.Config{})
	c.put("key", nil)
	c.admin(200, "PUT", "/credentials", `{"access_key_id":"sts-id","access_key_secret":"sts-secret","security_token":"the-token"}`, nil)
	other := *c
	emu := *c.emu
	emu.AccessKeyID, emu.AccessKeySecret = "sts-id", "sts-secret"
	other.emu = &emu
	other.want(200, withHeader(other.object("GET", "key", ""), "x-oss-security-token", "the-token"))
	if a := other.do(withHeader(other.object("GET", "key", ""), "x-oss-security-token", "another")); a.status != 403 {
		t.Errorf("another token: status %d", a.status)
	}
	c.admin(200, "DELETE", "/credentials/sts-id", "", nil)
	other.refused(403, "InvalidAccessKeyId", withHeader(other.object("GET", "key", ""), "x-oss-security-token", "the-token"))
	c.admin(400, "PUT", "/credentials", `{"access_key_id":"half"}`, nil)
	c.admin(200, "GET", "/healthz", "", nil)
}
