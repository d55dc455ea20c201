package mounting

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// warnings are what was found wrong at the start and does not end the mount. They are
// logged when the mount is ready, and shown in status as long as it lives.
type warnings struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		texts []string
	}
}

// add warns of text, once. An empty one is none.
func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" || slices.Contains(w.mu.texts, text) {
		return
	}
	w.mu.texts = append(w.mu.texts, text)
}

// tell logs them.
func (w *warnings) tell() {
	for _, text := range w.all() {
		w.log.Warn("something is wrong that does not end the mount", "warning", text)
	}
}

// all returns what was warned of.
func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mu.texts)
}

// warningTexts returns what status warns of: what was found at the start and lasts,
// and what is wrong now.
func (d *Daemon) warningTexts() []string {
	texts := d.warnings.all()
	if text := d.web.Warning(); text != "" {
		texts = append(texts, text)
	}
	if text := d.auditWarning(); text != "" {
		texts = append(texts, text)
	}
	if access := d.store.client.Access(); access.Refused {
		texts = append(texts, fmt.Sprintf("the object store refuses access since %s: %s: what is cached is served on, and what was written waits; SECURITY.md says for how long",
			access.Since.UTC().Format(time.RFC3339), access.Reason))
	}
	return texts
}
