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
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/mounttest"
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

func TestWebServesMetricsHealthAndIfAskedProfiles(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, debug := range []bool{false, true} {
		startForeground(t, environ(), s.at, s.mountArgs("--http=0", fmt.Sprintf("--http-debug=%v", debug))...)
		report := statusOf(t, s.at)
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
			code, body := get(t, report.HTTP, path, "")
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
		for path := range map[string]int{"/metrics": 0, "/healthz": 0} {
			if code, _ := get(t, report.HTTP, path, "evil.example"); code != http.StatusForbidden {
				t.Errorf("%s as evil.example: %d", path, code)
			}
		}
		mustRun(t, "umount", s.at)
	}
}

func TestTakenAddressIsAWarningUntilItIsFree(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs("--http="+taken.Addr().String())...)
	s.reads()
	report := statusOf(t, s.at)
	if report.HTTP != "" || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "neither metrics nor health") {
		t.Errorf("served at %q, warnings %q", report.HTTP, report.Warnings)
	}
	if out := mustRun(t, "status", s.at).stdout; !strings.Contains(out, "WARNING") || !strings.Contains(out, "address already in use") {
		t.Errorf("status says\n%s", out)
	}
	if log := f.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "address already in use") {
		t.Errorf("the log says\n%s", log)
	}
	mustRun(t, "umount", s.at)
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAddressIsTriedAgainUntilItIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w, err := listenWeb(&config.Config{HTTP: taken.Addr().String(), HTTPDebug: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.again = time.Millisecond
	w.serve(&daemon{registry: newRegistry()})
	if w.address() != "" || w.warning() == "" {
		t.Errorf("served at %q, warning %q", w.address(), w.warning())
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the address is had", func() bool { return w.address() != "" })
	if w.warning() != "" {
		t.Errorf("warning %q", w.warning())
	}
	if code, _ := get(t, w.address(), "/metrics", ""); code != http.StatusOK {
		t.Errorf("metrics: %d", code)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

func TestWebAnswersNoPageOfAnotherSite(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local := newWebGuard(&config.Config{HTTP: "9321"})
	remote := newWebGuard(&config.Config{HTTP: "node-1:9321", HTTPAllowRemote: true, HTTPHosts: "Mount.example, other"})
	ask := func(g webGuard, host string, header http.Header) bool {
		r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.Host, r.Header = host, header
		w := httptest.NewRecorder()
		g.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", host, w.Code)
		}
		return w.Code == http.StatusOK
	}
	for host, want := range map[string]struct{ local, remote bool }{
		"localhost":         {true, true},
		"LocalHost.:9321":   {true, true},
		"127.0.0.1:80":      {true, true},
		"[::1]:80":          {true, true},
		"::1":               {true, true},
		"10.1.2.3:80":       {false, true},
		"node-1:9321":       {false, true},
		own:                 {strings.EqualFold(own, "localhost"), true},
		"mount.example:1":   {false, true},
		"other":             {false, true},
		"evil.example":      {false, false},
		"localhost.evil:1":  {false, false},
		"127.0.0.1.evil":    {false, false},
		"evil/127.0.0.1":    {false, false},
		"evil@127.0.0.1:80": {false, false},
		"":                  {false, false},
	} {
		if got := ask(local, host, nil); got != want.local {
			t.Errorf("host %q at the loopback address: %v", host, got)
		}
		if got := ask(remote, host, nil); got != want.remote {
			t.Errorf("host %q from other machines: %v", host, got)
		}
	}
	for _, row := range []struct {
		name, value string
		want        bool
	}{
		{"Sec-Fetch-Site", "none", true},
		{"Sec-Fetch-Site", "same-origin", true},
		{"Sec-Fetch-Site", "same-site", false},
		{"Sec-Fetch-Site", "cross-site", false},
		{"Sec-Fetch-Site", "Cross-Site", false},
		{"Origin", "http://127.0.0.1:9321", true},
		{"Origin", "http://127.0.0.1:8080", false},
		{"Origin", "https://evil.example", false},
		{"Origin", "null", false},
		{"Referer", "http://127.0.0.1:9321/debug/pprof/", true},
		{"Referer", "https://evil.example/", false},
	} {
		for _, g := range []webGuard{local, remote} {
			if got := ask(g, "127.0.0.1:9321", http.Header{row.name: {row.value}}); got != row.want {
				t.Errorf("%s: %s is answered: %v", row.name, row.value, got)
			}
		}
	}
	if ask(local, "127.0.0.1:9321", http.Header{"Sec-Fetch-Site": {"none", "cross-site"}}) {
		t.Error("the second of two lines is not looked at")
	}
}

func TestProfilesAreBoundedAndForThisMachine(t *testing.T) {
	t.Parallel()
	ask := func(p *debugPages, peer, path string) int {
		mux := http.NewServeMux()
		p.register(mux)
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	const here, elsewhere, quick = "127.0.0.1:1", "10.0.0.1:1", "/debug/pprof/cmdline"
	for _, row := range []struct {
		peer, path string
		want       int
	}{
		{here, quick, http.StatusOK},
		{"[::1]:1", quick, http.StatusOK},
		{"[::ffff:127.0.0.1]:1", quick, http.StatusOK},
		{elsewhere, quick, http.StatusForbidden},
		{"", quick, http.StatusForbidden},
		{here, "/debug/pprof/trace?seconds=100000", http.StatusBadRequest},
		{here, "/debug/pprof/trace?seconds=NaN", http.StatusBadRequest},
		{here, "/debug/pprof/trace?seconds=1e9", http.StatusBadRequest},
		{here, "/debug/pprof/trace?seconds=Inf", http.StatusBadRequest},
		{here, "/debug/pprof/trace?seconds=0&seconds=61", http.StatusBadRequest},
		{here, "/debug/pprof/profile?seconds=61", http.StatusBadRequest},
		{here, "/debug/pprof/profile?seconds=-1", http.StatusBadRequest},
		{here, "/debug/pprof/heap?seconds=61", http.StatusBadRequest},
		{here, "/debug/pprof/heap?seconds=1", http.StatusOK},
	} {
		if code := ask(newDebugPages(false), row.peer, row.path); code != row.want {
			t.Errorf("%s asks for %s: %d, want %d", row.peer, row.path, code, row.want)
		}
	}
	if code := ask(newDebugPages(true), elsewhere, quick); code != http.StatusOK {
		t.Errorf("another machine, which may: %d", code)
	}
	busy := newDebugPages(false)
	for range mostDebugRequests {
		busy.running <- struct{}{}
	}
	if code := ask(busy, here, quick); code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", code)
	}
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

// notifySocket stands in for the service manager, which reads at once: a socket takes no more
// than ten messages that nobody has read, and whoever sends the next one waits.
func notifySocket(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	messages := make(chan string, 10_000) // more than are sent in all that time
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return // it was closed
			}
			messages <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { _ = c.Close() })
	return path, func() string {
		t.Helper()
		select {
		case m := <-messages:
			return m
		case <-time.After(patience):
			t.Fatal("no message came")
			return ""
		}
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
	log := new(mounttest.Output)
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
