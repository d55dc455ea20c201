package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

func TestFindingsFollowFromFacts(t *testing.T) {
	modern, old := kernel{"6.12.9-amd64"}, kernel{"5.10.0"}
	for _, c := range []struct {
		check check
		want  Level
		says  string
	}{
		{modern, OK, "6.12.9"},
		{kernel{"6.9"}, OK, "6.9"},
		{old, Warn, "without passthrough"},
		{kernel{"4.19.0"}, Fail, "too old"},
		{kernel{""}, Fail, "too old"},
		{fuse{}, OK, "/dev/fuse"},
		{fuse{errors.New("no such device: load it")}, Fail, "load it"},
		{passthrough{modern, true}, OK, "on"},
		{passthrough{modern, false}, Warn, "CAP_SYS_ADMIN"},
		{passthrough{old, true}, Warn, "5.10.0 has none"},
		{files{most: 1 << 20}, OK, "1048576"},
		{files{most: 1024, raise: true}, OK, "1024 files"},
		{files{most: 1024}, Warn, "at most 1024"},
		{ioLimit{}, OK, "does not limit"},
		{ioLimit{[]string{"8:0 rbps=1000"}}, Warn, "8:0 rbps=1000"},
		{cacheDisk{dir: "/ssd", kind: "ext4", free: 9 << 30, total: 10 << 30, written: 64 << 20, took: 100 * time.Millisecond}, OK, "9.0 GiB of 10 GiB free"},
		{cacheDisk{dir: "/ssd", kind: "ext4", free: 9 << 30, written: 64 << 20, took: 4 * time.Second}, Warn, "slower than the object store"},
		{cacheDisk{dir: "/ssd", kind: "ext4", free: 9 << 20, written: 4 << 20, took: time.Millisecond}, Warn, "hardly any room"},
		{cacheDisk{dir: "/dev/shm", kind: "tmpfs", free: 9 << 30, written: 4 << 20, took: time.Millisecond}, Warn, "that is memory"},
		{cacheDisk{dir: "/home", kind: "nfs", free: 9 << 30, written: 4 << 20, took: time.Millisecond}, Warn, "another machine's"},
		{cacheDisk{dir: "/ssd", err: errors.New("read-only file system")}, Fail, "read-only"},
		{credentials{}, OK, "keys"},
		{credentials{errors.New("no key is set")}, Fail, "no key is set"},
		{endpoint{address: "https://oss", took: time.Millisecond}, OK, "1ms"},
		{endpoint{address: "https://oss", err: errors.New("refused")}, Fail, "refused"},
		{clock{told: true, ahead: time.Second}, OK, "agrees"},
		{clock{told: true, ahead: 2 * time.Minute}, Warn, "2m0s ahead of"},
		{clock{told: true, ahead: -20 * time.Minute}, Fail, "20m0s behind"},
		{clock{}, Warn, "does not tell its time"},
		{region{"https://oss-cn-hangzhou-internal.aliyuncs.com", ""}, OK, "internal endpoint of cn-hangzhou"},
		{region{"oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"}, OK, "internal endpoint of cn-hangzhou"},
		{region{"https://bucket.oss-cn-beijing.aliyuncs.com", ""}, Warn, "public endpoint of cn-beijing"},
		{region{"https://oss-cn-hangzhou-internal.aliyuncs.com", "cn-beijing"}, Fail, "--region says cn-beijing"},
		{region{"http://127.0.0.1:9000", "cn-beijing"}, OK, "not known"},
		{right{name: "list", on: "oss://bucket"}, OK, "oss://bucket"},
		{right{name: "list"}, Warn, "nothing is there"},
		{right{name: "get", err: fmt.Errorf("get: %w", oss.ErrAccessDenied)}, Fail, "access denied"},
		{right{name: "put", err: errors.New("it broke")}, Fail, "it broke"},
		{throttling{requests: 16}, OK, "16 requests"},
		{throttling{requests: 16, times: 3}, Warn, "told 3 to slow down"},
		{throttling{requests: 16, failed: errors.New("reset")}, Warn, "reset"},
	} {
		got := c.check.find()
		if got.Level != c.want || !strings.Contains(got.Text, c.says) || got.Check == "" {
			t.Errorf("%#v: %+v, want %s and something of %q", c.check, got, c.want, c.says)
		}
		if (got.Remedy == "") != (got.Level == OK) {
			t.Errorf("%#v: %s with the remedy %q", c.check, got.Level, got.Remedy)
		}
	}
}

func TestTheGravestFindingCounts(t *testing.T) {
	for _, c := range []struct {
		levels []Level
		want   Level
	}{{nil, OK}, {[]Level{OK, OK}, OK}, {[]Level{OK, Warn, OK}, Warn}, {[]Level{Fail, Warn, OK}, Fail}, {[]Level{Warn, Fail}, Fail}} {
		var findings []Finding
		for _, l := range c.levels {
			findings = append(findings, Finding{Level: l})
		}
		if got := newReport(findings).Level; got != c.want {
			t.Errorf("%v: %s", c.levels, got)
		}
	}
}

func TestADiskIsMeasuredWithoutATrace(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Join(dir, "not made yet")} {
		d := measure(at)
		if d.err != nil || d.kind == "" || d.total == 0 || d.written == 0 || d.took <= 0 {
			t.Errorf("%+v", d)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if d := measure(filepath.Join(dir, "a", "b")); d.err == nil {
		t.Errorf("%+v", d)
	}
}

func TestLimitsOfGroupsAboveCount(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup": "0::/a/b\n", "a/io.max": "8:0 rbps=1000\n", "a/b/io.max": "\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l := ioLimits(filepath.Join(root, "cgroup"), root); len(l.lines) != 1 || l.lines[0] != "8:0 rbps=1000" {
		t.Errorf("%q", l.lines)
	}
	if l := ioLimits(filepath.Join(root, "none"), root); len(l.lines) != 0 {
		t.Errorf("%q", l.lines)
	}
}

func TestTheClockIsHeldAgainstTheEndpoints(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	e, c := hello(t.Context(), server.URL)
	if got := c.find(); e.err != nil || got.Level != Fail || !strings.Contains(got.Text, "ahead of") || c.ahead < 59*time.Minute {
		t.Errorf("%v, %+v", e.err, got)
	}
	if e, _ := hello(t.Context(), "http://127.0.0.1:1"); e.err == nil {
		t.Error("nobody answered, and it is well")
	}
}

// TestKeysDoNotSteerTheTerminal: whoever may write to a bucket chooses its keys.
func TestKeysDoNotSteerTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := newReport([]Finding{right{name: "get", on: "a\x1b[2Jb"}.find(), right{name: "put", err: errors.New("put \x1b[2J")}.find()}).write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), `\x1b[2J`) != 2 {
		t.Errorf("%q", out.String())
	}
}
