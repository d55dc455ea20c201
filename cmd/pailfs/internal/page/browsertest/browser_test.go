package browsertest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, nil) }

// browser is a tab of a Chromium without a window.
type browser struct {
	t   *testing.T
	ctx context.Context
	mu  sync.Mutex
	// complaints are what the console, the network and the policy said against the page; asked are
	// the origins that it asked.
	complaints []string
	asked      map[string]bool
}

// violations records what the page's policy refused, which the console may say too late.
const violations = `window.violations = []; document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));`

// newBrowser starts one. It ends with the test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programtest.Patience)
	t.Cleanup(cancel)
	// Root has no sandbox of user namespaces; the pages are our own.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("lang", "en-GB"))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, asked: map[string]bool{}}
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatalf("%v: install Debian's package chromium (make deps does)", err)
	}
	b.check(chromedp.Call(ctx, network.Enable, network.EnableParams{}))
	b.check(chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: violations}))
	return b
}

// check fails the test at once if an action, whose result does not matter, failed.
func (b *browser) check(_ any, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// heard takes down what the browser tells of the page.
func (b *browser) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(format string, args ...any) { b.complaints = append(b.complaints, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		complain("console.%s", e.Type)
	case *runtime.EventExceptionThrown:
		complain("exception: %s", e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		complain("%s: %s", e.Entry.Level, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil {
			complain("request to %s", e.Request.URL)
			return
		}
		b.asked[at.Scheme+"://"+at.Host] = true
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			complain("%d for %s", e.Response.Status, e.Response.URL)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled {
			complain("a request failed: %s", e.ErrorText)
		}
	}
}

// heardAgainst returns the complaints so far, and forgets them.
func (b *browser) heardAgainst() []string {
	b.t.Helper()
	refused := evaluate[[]string](b, "window.violations")
	b.mu.Lock()
	defer b.mu.Unlock()
	all := append(b.complaints, refused...)
	b.complaints = nil
	return all
}

// do carries out actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// evaluate returns what a script gives in the page.
func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%v: %s", err, script)
	}
	return value
}

// waits until a script gives true.
func (b *browser) waits(what, script string) {
	b.t.Helper()
	programtest.Eventually(b.t, what, func() bool {
		// While a document takes the place of another one there may be none to ask.
		holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](script))
		return err == nil && holds
	})
}

// open shows a page and waits until it has figures.
func (b *browser) open(address string) {
	b.t.Helper()
	// From another document: what follows # alone loads nothing.
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address))
	b.waits("there are figures", `document.getElementById("version")?.textContent > ""`)
}

// looks makes the window so wide, and light or dark.
func (b *browser) looks(width int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900))
	b.check(chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
	// What was drawn for another width is drawn anew before the frame after next.
	b.check(chromedp.Run(b.ctx, chromedp.Evaluate[bool](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, chromedp.EvalAwaitPromise)))
}

// picture keeps a picture of the whole page.
func (b *browser) picture(name string) {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name), image, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

//go:embed audit.js
var audit string

// audits says what is wrong with the page for whoever has no mouse, no colours or no eyes.
func (b *browser) audits() []string {
	b.t.Helper()
	return evaluate[[]string](b, audit)
}

// figures returns what the page shows: by field, the figure behind the text.
func (b *browser) figures() map[string]string {
	b.t.Helper()
	return evaluate[map[string]string](b, `Object.fromEntries([...document.querySelectorAll("[data-field]")].map((e) => [e.dataset.field, e.getAttribute("value") ?? ""]))`)
}

// at returns a field of a JSON document as the page has it: a number as JavaScript writes it.
func at(t *testing.T, document any, path string) (value any, found bool) {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for key := range strings.SplitSeq(path, ".") {
		object, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = object[key]; !ok {
			return nil, false
		}
	}
	return tree, tree != nil
}
