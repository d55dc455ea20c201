package attributes

import (
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// marker is what was asked of the object of a directory.
type marker struct {
	attr  *manifest.Attr
	until time.Time
}

// mostMarkers is how many directories are remembered.
const mostMarkers = 65536

// recallMarker completes the entry of a directory, if it was asked not long ago.
func (t *Tree) recallMarker(e *manifest.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.mu.markers[e.Object.Key]
	if !ok || !time.Now().Before(m.until) {
		return false
	}
	e.Attr = m.attr
	return true
}

// noteMarker remembers what the object at key says of a directory.
func (t *Tree) noteMarker(key string, attr *manifest.Attr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.markers) >= mostMarkers {
		clear(t.mu.markers)
	}
	t.mu.markers[key] = marker{attr: attr, until: time.Now().Add(t.cfg.TTL)}
}

// forgetMarker makes the next lookup of a directory ask again.
func (t *Tree) forgetMarker(dir, name string) {
	key, ok := manifest.ObjectKey(t.cfg.Prefix, dir, name)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.markers, key+"/")
}
