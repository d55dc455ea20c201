package ossemutest_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnEmulatorForATest(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	tag := e.Put("key", []byte("content"))
	if tag != "9A0364B9E99BB480DD25E1F0284C8555" {
		t.Errorf("tag %s", tag)
	}
	e.Put("other", nil)
	e.Delete("other")
	endpoint := e.Endpoint
	e.Restart()
	if e.Endpoint != endpoint {
		t.Errorf("after a restart at %s, not %s", e.Endpoint, endpoint)
	}
	if got := string(e.Get("key")); got != "content" {
		t.Errorf("content %q", got)
	}
	if d := cmp.Diff([]string{"key"}, e.Keys("")); d != "" {
		t.Error(d)
	}
	if n := e.Requests(""); n != 0 {
		t.Errorf("%d requests before the first", n)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(e.Endpoint + "/" + e.Bucket + "/key")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only read
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a private object without a signature: status %d", resp.StatusCode)
	}
	if e.Requests("GetObject") != 1 || e.Requests("") != 1 {
		t.Errorf("%d and %d requests", e.Requests("GetObject"), e.Requests(""))
	}
	resp, err = client.Get(e.AdminEndpoint + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only read
	if resp.StatusCode != http.StatusOK {
		t.Errorf("administration: status %d", resp.StatusCode)
	}
}
