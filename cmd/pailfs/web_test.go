package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestWebServesMetricsHealthAndIfAskedProfiles(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	for _, debug := range []bool{false, true} {
		programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http=0", fmt.Sprintf("--http-debug=%v", debug))...)
		report := programtest.StatusOf(t, s.At)
		if host, _, err := net.SplitHostPort(report.HTTP); err != nil || host != "127.0.0.1" {
			t.Fatalf("a port alone listens at %q", report.HTTP)
		}
		for path, want := range map[string]string{
			"/metrics":                   "pailfs_build_info{version=",
			"/healthz":                   `"status":"ok"`,
			"/debug/pprof/":              "goroutine",
			"/debug/pprof/heap?debug=1":  "heap profile",
			"/debug/pprof/cmdline":       "mount",
			"/debug/pprof/symbol?0x1234": "num_symbols",
		} {
			code, body := programtest.Get(t, report.HTTP, path, "")
			if !debug && strings.HasPrefix(path, "/debug") {
				if code != http.StatusNotFound {
					t.Errorf("%s without http-debug: %d %s", path, code, body)
				}
				continue
			}
			if code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		for _, path := range []string{"/metrics", "/healthz", "/", "/page.js", "/page.json"} {
			if code, _ := programtest.Get(t, report.HTTP, path, "evil.example"); code != http.StatusForbidden {
				t.Errorf("%s as evil.example: %d", path, code)
			}
		}
		programtest.MustRun(t, "umount", s.At)
	}
}

// TestThePagesSecretIsToldByStatusPageAlone: what else is printed, logged and served has it not.
func TestThePagesSecretIsToldByStatusPageAlone(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http=0")...)
	address := programtest.StatusOf(t, s.At).HTTP
	url := strings.TrimSpace(programtest.MustRun(t, "status", "--page", s.At).Stdout)
	page, secret, found := strings.Cut(url, "#token=")
	if !found || page != "http://"+address+"/" || len(secret) < 26 {
		t.Fatalf("status --page prints %q", url)
	}
	for what, text := range map[string]string{
		"status": programtest.MustRun(t, "status", s.At).Stdout, "status --json": programtest.MustRun(t, "status", "--json", s.At).Stdout,
		"top": programtest.MustRun(t, "top", "--once", "--json", "--interval=100ms", s.At).Stdout, "the log": f.Log.String(),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the secret: %s", what, text)
		}
	}
	for _, path := range []string{"/", "/page.json", "/page.js", "/metrics", "/healthz"} {
		code, body := programtest.Get(t, address, path, "")
		if code != http.StatusOK || strings.Contains(body, secret) || strings.Contains(body, s.At) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	programtest.MustRun(t, "umount", s.At)

	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	if o := programtest.Run(t, programtest.Environ(), "status", "--page", s.At); o.Code != 1 || !strings.Contains(o.Stderr, "--http 9321") {
		t.Errorf("without an address: exit code %d, %s", o.Code, o.Stderr)
	}
	programtest.MustRun(t, "umount", s.At)
}

// TestPagesOfOtherSitesStartNoProfiles asks as a browser does for a page that is not ours.
func TestPagesOfOtherSitesStartNoProfiles(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http=0", "--http-debug")...)
	address := programtest.StatusOf(t, s.At).HTTP
	for _, path := range []string{"/metrics", "/healthz", "/", "/page.js", "/page.json", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1"} {
		for from, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Sec-Fetch-Site", from)
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s, %s: %d, want %d", path, from, answer.StatusCode, want)
			}
		}
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestTakenAddressIsAWarningUntilItIsFree(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http="+taken.Addr().String())...)
	s.Reads()
	report := programtest.StatusOf(t, s.At)
	if report.HTTP != "" || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "neither metrics nor health") {
		t.Errorf("served at %q, warnings %q", report.HTTP, report.Warnings)
	}
	if out := programtest.MustRun(t, "status", s.At).Stdout; !strings.Contains(out, "WARNING") || !strings.Contains(out, "address already in use") {
		t.Errorf("status says\n%s", out)
	}
	if log := f.Log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "address already in use") {
		t.Errorf("the log says\n%s", log)
	}
	programtest.MustRun(t, "umount", s.At)
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := taken.Close(); err != nil {
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
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http=0", "--audit="+filepath.Join(t.TempDir(), "audit"))...)
	// Metrics with labels appear with their first value: make some.
	s.Reads()
	if _, err := os.Stat(filepath.Join(s.At, "missing")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if _, err := unix.Getxattr(filepath.Join(s.At, "dir/file"), "user.pailfs.missing", nil); !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	code, text := programtest.Get(t, programtest.StatusOf(t, s.At).HTTP, "/metrics", "")
	if code != http.StatusOK {
		t.Fatal(text)
	}
	// Those of names differ between one that lists and one that follows a manifest.
	p := programtest.NewPublisher(s)
	p.Publish(p.Build(nil))
	at := programtest.NewMountPoint(t)
	programtest.StartForeground(t, programtest.Environ(), at, "mount", "oss://"+programtest.TestBucket, at, "--endpoint="+s.Endpoint, "--memory=64MiB", "--http=0", "--read-only", "--attrs=oss")
	code, followed := programtest.Get(t, programtest.StatusOf(t, at).HTTP, "/metrics", "")
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
	programtest.MustRun(t, "umount", at)
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
	programtest.MustRun(t, "umount", s.At)
}
