package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/oss"
)

// statusOf returns what the daemon says of itself.
func statusOf(t *testing.T, at string) statusReport {
	t.Helper()
	var r statusReport
	if err := json.Unmarshal([]byte(mustRun(t, "status", "--json", at).stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// get fetches a page, naming the host as given.
func get(t *testing.T, address, path, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestWebServesMetricsHealthAndProfiles(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs("--http=0")...)
	address := statusOf(t, s.at).HTTP
	if host, _, err := net.SplitHostPort(address); err != nil || host != "127.0.0.1" {
		t.Fatalf("a port alone listens at %q", address)
	}
	for path, want := range map[string]string{
		"/metrics":                   "pailfs_build_info{version=",
		"/healthz":                   `"status":"ok"`,
		"/debug/pprof/":              "goroutine",
		"/debug/pprof/heap?debug=1":  "heap profile",
		"/debug/pprof/cmdline":       "mount",
		"/debug/pprof/symbol?0x1234": "num_symbols",
	} {
		if code, body := get(t, address, path, ""); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for host, want := range map[string]int{
		"localhost":        http.StatusOK,
		"127.0.0.1:80":     http.StatusOK,
		"[::1]:80":         http.StatusOK,
		"evil.example":     http.StatusForbidden,
		"10.1.2.3:80":      http.StatusForbidden,
		"localhost.evil:1": http.StatusForbidden,
	} {
		if code, _ := get(t, address, "/metrics", host); code != want {
			t.Errorf("host %s: %d, want %d", host, code, want)
		}
	}
	mustRun(t, "umount", s.at)
}

func TestHealthFailsWhenTheMountDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	credentials, err := oss.OpenCredentials(oss.CredentialsConfig{Kind: oss.CredentialsAnonymous}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = credentials.Close() }()
	observer := &daemon{liveness: mountpoint.NewProber(s.at), credentials: credentials}
	ask := func() (int, string) {
		w := httptest.NewRecorder()
		observer.serveHealth(w, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		return w.Code, w.Body.String()
	}
	if code, body := ask(); code != http.StatusOK || !strings.Contains(body, `"mount":"alive"`) {
		t.Errorf("living mount: %d %s", code, body)
	}
	f.freeze(t)
	if code, body := ask(); code != http.StatusServiceUnavailable || !strings.Contains(body, `"mount":"stuck"`) {
		t.Errorf("stopped daemon: %d %s", code, body)
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.code(t)
	if code, body := ask(); code != http.StatusServiceUnavailable || !strings.Contains(body, `"mount":"dead"`) {
		t.Errorf("dead daemon: %d %s", code, body)
	}
}

// notifySocket stands in for the service manager.
func notifySocket(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return path, func() string {
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestServiceManagerIsToldTheState(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	path, next := notifySocket(t)
	f := startForeground(t, environ("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000"), s.at, s.mountArgs()...)
	if first := next(); !strings.HasPrefix(first, "READY=1\nSTATUS=oss://"+testBucket+" is mounted at "+s.at) {
		t.Errorf("first message %q", first)
	}
	if second := next(); second != "WATCHDOG=1" {
		t.Errorf("second message %q", second)
	}
	mustRun(t, "umount", s.at)
	for {
		message := next()
		if strings.HasPrefix(message, "STOPPING=1") {
			break
		}
		if message != "WATCHDOG=1" {
			t.Errorf("message %q", message)
		}
	}
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWatchdogIsNotToldThatAStuckMountLives(t *testing.T) {
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	path, next := notifySocket(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	log := new(syncBuffer)
	n := newNotifier(slog.New(slog.NewTextHandler(log, nil)))
	stop := n.watch(mountpoint.NewProber(s.at))
	if m := next(); m != "WATCHDOG=1" {
		t.Errorf("message %q", m)
	}
	f.freeze(t)
	eventually(t, "the silence is logged twice", func() bool { return strings.Count(log.String(), "does not answer") >= 2 })
	stop()
	n.tell("LAST=1")
	// What was sent before the stop took hold comes first; nothing after it.
	for m := next(); m != "LAST=1"; m = next() {
		if m != "WATCHDOG=1" {
			t.Errorf("message %q", m)
		}
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// metric is one metric of a text exposition.
type metric struct {
	name, kind, help string
	labels           []string
}

// parseMetrics reads a text exposition.
func parseMetrics(text string) []metric {
	var metrics []metric
	find := func(name string) *metric {
		for i := range metrics {
			if metrics[i].name == name {
				return &metrics[i]
			}
		}
		return nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name, help, _ := strings.Cut(strings.TrimPrefix(line, "# HELP "), " ")
			metrics = append(metrics, metric{name: name, help: help})
		case strings.HasPrefix(line, "# TYPE "):
			name, kind, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
			find(name).kind = kind
		default:
			name, rest, labelled := strings.Cut(line, "{")
			if !labelled {
				continue
			}
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if m := find(strings.TrimSuffix(name, suffix)); m != nil {
					name = m.name
				}
			}
			labels, _, _ := strings.Cut(rest, "}")
			for pair := range strings.SplitSeq(labels, `",`) {
				label, _, _ := strings.Cut(pair, "=")
				if m := find(name); label != "le" && !slices.Contains(m.labels, label) {
					m.labels = append(m.labels, label)
				}
			}
		}
	}
	return metrics
}

func TestMetricsDocumentListsWhatARunningMountExports(t *testing.T) {
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs("--http=0")...)
	// Metrics with labels appear with their first value: make some.
	s.reads()
	if _, err := os.Stat(filepath.Join(s.at, "missing")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if _, err := unix.Getxattr(filepath.Join(s.at, "dir/file"), "user.pailfs.missing", nil); !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	code, text := get(t, statusOf(t, s.at).HTTP, "/metrics", "")
	if code != http.StatusOK {
		t.Fatal(text)
	}
	// Those of names differ between one that lists and one that follows a manifest.
	p := newPublisher(s)
	p.publish(p.build(nil))
	at := newMountPoint(t)
	startForeground(t, environ(), at, "mount", "oss://"+testBucket, at, "--endpoint="+s.endpoint, "--memory=64MiB", "--http=0", "--read-only", "--attrs=oss")
	code, followed := get(t, statusOf(t, at).HTTP, "/metrics", "")
	if code != http.StatusOK {
		t.Fatal(followed)
	}
	exported := parseMetrics(text)
	for _, m := range parseMetrics(followed) {
		if !slices.ContainsFunc(exported, func(e metric) bool { return e.name == m.name }) {
			exported = append(exported, m)
		}
	}
	slices.SortFunc(exported, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	mustRun(t, "umount", at)
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range exported {
		if !strings.HasPrefix(m.name, "pailfs_") {
			if !strings.HasPrefix(m.name, "go_") && !strings.HasPrefix(m.name, "process_") {
				t.Errorf("metric %s has a foreign name", m.name)
			}
			continue
		}
		if m.help == "" || m.kind == "" || m.kind == "untyped" {
			t.Errorf("metric %s has no help or no type", m.name)
		}
		slices.Sort(m.labels)
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, strings.ReplaceAll(m.help, "|", `\|`))
	}
	compareDocument(t, "METRICS.md", b.String()+"\n")
	mustRun(t, "umount", s.at)
}
