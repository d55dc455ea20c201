package browsertest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/prefetch/control"
)

// hostile is what a user may name a file: it would be a script, turn what follows round, and steer.
const hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.\x1b[2J\u200b&amp;"

// hostileFile is the same without a slash.
var hostileFile = strings.ReplaceAll(hostile, "/", "_")

// shown is how the page writes it.
const shown = `<img src=x onerror=alert(1)><script>alert(2)</script>\u{202e}gnp.\u{1b}[2J\u{200b}&amp;`

// scene is a mount with something of all that the page shows.
type scene struct {
	at, address, secret string
}

// newScene mounts a bucket, reads, writes, opens a session, and lets uploads fail.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := programtest.NewScene(t)
	s.Put(t, "odd/"+hostileFile+"//x", []byte("an empty name lies in its key"))
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--http=0", "--metadata-ttl=1h")...)
	s.Reads()
	s.Reads()
	if _, err := os.ReadDir(filepath.Join(s.At, "odd", hostileFile)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetFaults([]ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden}}); err != nil {
		t.Fatal(err)
	}
	programtest.WriteFile(t, filepath.Join(s.At, hostileFile), "content")
	open, err := os.Open(filepath.Join(s.At, "dir", "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() })
	client, err := control.Dial(s.At)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Call(t.Context(), "loader.open", control.OpenParams{Task: hostile, Worker: 3, Buffer: 10}, nil); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "an upload fails", func() bool { return programtest.WritingStatus(t, s.At).FailingCount == 1 })
	page := strings.TrimSpace(programtest.MustRun(t, "status", "--page", s.At).Stdout)
	address, secret, found := strings.Cut(page, "#token=")
	if !found {
		t.Fatalf("status --page prints %q", page)
	}
	return &scene{s.At, address, secret}
}

func TestThePageInABrowser(t *testing.T) {
	s := newScene(t)
	b := newBrowser(t)
	t.Run("shows what status says", func(t *testing.T) { b.t = t; showsWhatStatusSays(t, b, s) })
	t.Run("writes names as text", func(t *testing.T) { b.t = t; writesNamesAsText(t, b) })
	t.Run("remembers who may know names", func(t *testing.T) { b.t = t; remembersWhoMayKnowNames(t, b, s) })
	t.Run("can be used by everybody", func(t *testing.T) { b.t = t; canBeUsedByEverybody(t, b, s) })
	t.Run("tells others no names", func(t *testing.T) { b.t = t; tellsOthersNoNames(t, b, s) })
	t.Run("says that the daemon is gone", func(t *testing.T) { b.t = t; saysThatTheDaemonIsGone(t, b, s) })
}

// moving are figures that differ between two moments at which nothing happens.
var moving = []string{"mount.uptime_seconds", "mount.resident_bytes", "mount.uploads.oldest_seconds"}

// showsWhatStatusSays compares every figure of the page with the status of the same moment: one at
// which nothing happens, so that the status before and after it are the same.
func showsWhatStatusSays(t *testing.T, b *browser, s *scene) {
	b.looks(1280, "light")
	b.open(s.address + "#token=" + s.secret)
	b.waits("there are two points in the charts", `document.querySelector("[data-field='mount.rates.over_seconds'], [data-field='mount.rates.reads_per_second']").value !== ""`)
	var before, after overview.Mount
	var figures map[string]string
	var problems int64
	programtest.Eventually(t, "nothing happens while it is looked at", func() bool {
		status := func() overview.Mount {
			r := programtest.StatusOf(t, s.at)
			problems = r.FileSystem.Problems.Count
			m := overview.New(&r, time.Now())
			// Asking for the status is among the kernel's requests.
			m.Uptime, m.Resident, m.Uploads.OldestSeconds, m.Latencies = 0, 0, 0, nil
			for i := range m.Sessions {
				m.Sessions[i].Idle = 0
			}
			return m
		}
		before = status()
		b.do(chromedp.Evaluate[chromedp.Void](`refresh()`, chromedp.EvalAwaitPromise))
		figures = b.figures()
		after = status()
		return cmp.Equal(before, after)
	})
	compared := 0
	for field, got := range figures {
		if slices.Contains(moving, field) || strings.HasPrefix(field, "mount.rates.") || strings.HasPrefix(field, "drain.") {
			continue
		}
		var want any = float64(problems)
		found := true
		switch path, ofMount := strings.CutPrefix(field, "mount."); {
		case ofMount:
			want, found = at(t, before, path)
		case field == "sessions":
			want = float64(len(before.Sessions))
		case field != "problem_keys.count":
			t.Errorf("%s is compared with nothing", field)
			continue
		}
		number, err := strconv.ParseFloat(got, 64)
		if !found || err != nil || number != want {
			t.Errorf("%s: the page shows %q, status says %v", field, got, want)
		}
		compared++
	}
	if compared < 20 || figures["mount.uploads.failing"] != "1" || figures["sessions"] != "1" || figures["problem_keys.count"] != "1" || figures["mount.hits.oss_share"] != "1" {
		t.Errorf("%d figures were compared: %v", compared, figures)
	}
	for _, field := range moving {
		if n, err := strconv.ParseFloat(figures[field], 64); err != nil || n <= 0 {
			t.Errorf("%s: %q", field, figures[field])
		}
	}
	// The rates are of the newest interval of the history.
	if same := evaluate[bool](b, `Math.abs(Number(document.querySelector("[data-field='mount.rates.reads_per_second']").value) - latest.series.reads_per_second.at(-1)) < 0.01`); !same {
		t.Error("the rates are not those of the newest point of the charts")
	}
	// The requests to the object store, row by row.
	var want []string
	for _, o := range before.Requests {
		errors := uint64(0)
		for _, n := range o.Errors {
			errors += n
		}
		want = append(want, fmt.Sprint(o.Operation, " ", o.Count, " ", errors))
	}
	got := evaluate[[]string](b, `[...document.querySelectorAll("#requests tbody tr")].map((r) => [r.cells[0].textContent, ...[...r.querySelectorAll("data")].slice(0, 2).map((d) => d.value)].join(" "))`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-status +page):\n%s", diff)
	}
	if badge := evaluate[string](b, `document.getElementById("health").textContent`); badge != "✗ degraded" {
		t.Errorf("health %q", badge)
	}
	if complaints := b.heardAgainst(); len(complaints) > 0 {
		t.Errorf("the browser complains: %q", complaints)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for origin := range b.asked {
		if origin+"/" != s.address && !strings.HasPrefix(origin, "about:") {
			t.Errorf("it asks %s", origin)
		}
	}
}

// writesNamesAsText: in every place where there are names, and the policy would stop a script.
func writesNamesAsText(t *testing.T, b *browser) {
	file := strings.ReplaceAll(shown, "/", "_")
	for place, want := range map[string]string{
		"#waiting tbody th": file, "#loaders tbody th": shown, "#keys tbody th": "odd/" + file + "//",
	} {
		if got := evaluate[string](b, fmt.Sprintf(`document.querySelector(%q)?.textContent ?? ""`, place)); got != want {
			t.Errorf("%s: %q, want %q", place, got, want)
		}
	}
	if reasons := evaluate[string](b, `document.getElementById("reasons").textContent`); !strings.Contains(reasons, file) {
		t.Errorf("reasons: %q", reasons)
	}
	if readers := evaluate[string](b, `document.getElementById("readers").textContent`); !strings.Contains(readers, strconv.Itoa(os.Getpid())) {
		t.Errorf("readers: %q", readers)
	}
	if n := evaluate[int](b, `document.querySelectorAll("img, iframe, object, embed, main script").length`); n != 0 {
		t.Errorf("%d elements were made of names", n)
	}
	// The policy holds: each of these is refused, and would be heard of.
	for what, script := range map[string]string{
		"markup":                       `try { document.getElementById("source").innerHTML = "<b>x</b>"; false } catch { true }`,
		"a script of text":             `try { new Function("return 1")(); false } catch { true }`,
		"an answer of somebody else":   `fetch("http://192.0.2.1/", {mode: "no-cors"}).then(() => false, () => true)`,
		"a style that is not a file's": `(() => { const s = document.createElement("style"); s.textContent = "h1{position:fixed}"; document.head.append(s); const held = getComputedStyle(document.querySelector("h1")).position === "static"; s.remove(); return held })()`,
	} {
		refused, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise, asThePage))
		if err != nil || !refused {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
	if heard := b.heardAgainst(); !slices.ContainsFunc(heard, func(s string) bool { return strings.HasPrefix(s, "connect-src") }) {
		t.Errorf("what the policy refuses is not heard of: %q", heard)
	}
}

// asThePage leaves a script under the policy of the page.
func asThePage(p *runtime.EvaluateParams) { p.AllowUnsafeEvalBlockedByCSP = new(false) }

// remembersWhoMayKnowNames: the token leaves the address, and stays in the tab.
func remembersWhoMayKnowNames(t *testing.T, b *browser, s *scene) {
	if at := evaluate[string](b, `location.href`); at != s.address {
		t.Errorf("the address is still %s", at)
	}
	b.do(chromedp.Reload())
	b.waits("the page is back", `document.getElementById("version")?.textContent > ""`)
	if at := evaluate[string](b, `document.getElementById("mountpoint").textContent`); at != s.at {
		t.Errorf("after loading it again: at %q", at)
	}
	if complaints := b.heardAgainst(); len(complaints) > 0 {
		t.Errorf("the browser complains: %q", complaints)
	}
}

// canBeUsedByEverybody: on a telephone and a desk, light and dark, by keyboard and screen reader.
func canBeUsedByEverybody(t *testing.T, b *browser, s *scene) {
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => { d.open = true })`))
	for _, width := range []int64{360, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			b.looks(width, scheme)
			for _, wrong := range b.audits() {
				t.Errorf("%d wide, %s: %s", width, scheme, wrong)
			}
			b.picture(fmt.Sprintf("page-%d-%s.png", width, scheme))
		}
	}
	// The audit sees what is wrong.
	for _, spoil := range []string{
		`document.querySelector("#h-reads ~ dl dt").style.color = "#444"`, `document.querySelector("h2").id = "pause"`,
		`document.querySelector("main").style.width = "3000px"`, `document.querySelector("#kernel thead th").remove()`,
		`document.querySelectorAll("svg .s").forEach((e) => { e.style.strokeDasharray = "none" })`, `document.querySelector("#kernel").removeAttribute("aria-label")`, `document.querySelector("#kernel caption").remove()`,
	} {
		b.open(s.address)
		b.looks(360, "dark")
		b.do(chromedp.Evaluate[chromedp.Void](spoil))
		if len(b.audits()) == 0 {
			t.Errorf("the audit finds nothing wrong after %s", spoil)
		}
	}
	b.open(s.address)
	reads(t, b)
	tabs(t, b)
	if complaints := b.heardAgainst(); len(complaints) > 0 {
		t.Errorf("the browser complains: %q", complaints)
	}
}

// reads looks at what a screen reader is given.
func reads(t *testing.T, b *browser) {
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role, name := strings.Trim(string(node.Role.Value), `"`), ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		roles[role]++
		if name == "" && slices.Contains([]string{"button", "link", "image", "region", "table", "heading", "columnheader", "rowheader", "figure"}, role) {
			t.Errorf("a screen reader says %s without a name", role)
		}
	}
	for role, least := range map[string]int{"banner": 1, "main": 1, "contentinfo": 1, "status": 1, "button": 1, "heading": 7, "region": 7, "image": 6, "table": 3, "columnheader": 15, "rowheader": 5} {
		if roles[role] < least {
			t.Errorf("a screen reader finds %d of %s: %v", roles[role], role, roles)
		}
	}
}

// tabs goes through the page by the keyboard.
func tabs(t *testing.T, b *browser) {
	reached := map[string]bool{}
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		name := evaluate[string](b, `document.activeElement.id || document.activeElement.getAttribute("aria-label") || document.activeElement.textContent.trim().slice(0, 30)`)
		if reached[name] {
			break
		}
		reached[name] = true
		if seen := evaluate[bool](b, `document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== "none"`); !seen {
			t.Errorf("nobody sees that %q has the focus", name)
		}
		if name == "pause" {
			b.do(chromedp.KeyEvent(" "))
			if pressed := evaluate[string](b, `document.getElementById("pause").getAttribute("aria-pressed")`); pressed != "true" {
				t.Errorf("the space bar does not pause: %s", pressed)
			}
			b.do(chromedp.KeyEvent(" "))
		}
	}
	for _, want := range []string{"Skip to the figures", "pause", "kernel", "metrics"} {
		if !reached[want] {
			t.Errorf("the keyboard does not reach %q: %v", want, reached)
		}
	}
}

// tellsOthersNoNames: who has no token, or that of another daemon.
func tellsOthersNoNames(t *testing.T, b *browser, s *scene) {
	for _, after := range []string{"", "#token=AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		b.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.clear()`))
		b.open(s.address + after)
		text := evaluate[string](b, `document.documentElement.textContent`)
		for _, name := range []string{"onerror", "odd/", s.at, "worker", "sh -c"} {
			if strings.Contains(text, name) {
				t.Errorf("it tells %q to everybody", name)
			}
		}
		if figures := b.figures(); figures["mount.uploads.failing"] != "1" || figures["sessions"] != "1" || figures["problem_keys.count"] != "1" {
			t.Errorf("counts are not told: %v", figures)
		}
		note := evaluate[string](b, `document.getElementById("nameless").checkVisibility() ? document.getElementById("nameless").textContent : ""`)
		if !strings.Contains(note, "pailfs status --page") || strings.Contains(note, "has ended") != (after != "") {
			t.Errorf("it says %q", note)
		}
		if after == "" {
			if complaints := b.heardAgainst(); len(complaints) > 0 {
				t.Errorf("the browser complains: %q", complaints)
			}
		}
	}
}

// saysThatTheDaemonIsGone: what was shown stays, and is said to be old.
func saysThatTheDaemonIsGone(t *testing.T, b *browser, s *scene) {
	programtest.KillDaemons(t, s.at)
	b.do(chromedp.Evaluate[chromedp.Void](`refresh()`, chromedp.EvalAwaitPromise))
	if state := evaluate[string](b, `document.getElementById("state").textContent`); !strings.Contains(state, "does not answer") {
		t.Errorf("it says %q", state)
	}
	if figures := b.figures(); figures["mount.uploads.failing"] != "1" {
		t.Errorf("what was shown is gone: %v", figures)
	}
}
