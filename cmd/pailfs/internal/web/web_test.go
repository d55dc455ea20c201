package web

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestAddressIsTriedAgainUntilItIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w, err := Listen(&config.Config{HTTP: taken.Addr().String(), HTTPDebug: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.again = time.Millisecond
	w.Serve(NewRegistry("test"), func() Health { return Health{Status: "failing", Mount: "stuck"} }, http.NotFoundHandler())
	if w.Address() != "" || w.Warning() == "" {
		t.Errorf("served at %q, warning %q", w.Address(), w.Warning())
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the address is had", func() bool { return w.Address() != "" })
	if w.Warning() != "" {
		t.Errorf("warning %q", w.Warning())
	}
	if code, _ := programtest.Get(t, w.Address(), "/metrics", ""); code != http.StatusOK {
		t.Errorf("metrics: %d", code)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestAnAddressInBracketsIsTaken: manifests write one so, whether it is IPv4 or IPv6.
func TestAnAddressInBracketsIsTaken(t *testing.T) {
	c := &config.Config{HTTP: "[127.0.0.1]:0", HTTPAllowRemote: true, HTTPRequired: true}
	w, err := Listen(c, slog.New(slog.DiscardHandler))
	if err != nil || !strings.HasPrefix(w.Address(), "127.0.0.1:") {
		t.Fatalf("%v", err)
	}
	if g := newGuard(c); !g.known(w.Address()) {
		t.Errorf("%s is not known", w.Address())
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestWebAnswersNoPageOfAnotherSite(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local := newGuard(&config.Config{HTTP: "9321"})
	remote := newGuard(&config.Config{HTTP: "node-1:9321", HTTPAllowRemote: true, HTTPHosts: "Mount.example, other"})
	ask := func(g guard, host string, header http.Header) bool {
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
		for _, g := range []guard{local, remote} {
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
