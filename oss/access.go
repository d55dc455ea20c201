package oss

import (
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// AccessStatus says whether the server lets us in. The zero value means that it did
// when it was asked last.
type AccessStatus struct {
	// Refused says that the last answer about it was a refusal: of the keys, of the
	// signature, of the token or of a right.
	Refused bool
	// Since is when the first refusal came after the last success.
	Since time.Time
	// Reason is the server's code, such as InvalidAccessKeyId, and its status. It holds
	// no key of an object.
	Reason string
}

// accessWatch notices when the server begins to refuse us, and when it lets us in
// again. What is cached is served on meanwhile, so nobody might notice otherwise.
type accessWatch struct {
	log *slog.Logger
	// every is how often at most a change is logged: a right that is missing for some
	// objects makes it change with every request.
	every time.Duration
	// granted: it let us in once. Before, whoever asks says what is wrong.
	granted atomic.Bool
	refused atomic.Bool
	mu      struct {
		sync.Mutex
		status AccessStatus
		logged time.Time
	}
}

// observe takes how a request ended, nil for well.
func (w *accessWatch) observe(f *failure) {
	switch {
	case f == nil:
		if !w.granted.Load() {
			w.granted.Store(true)
		}
		if w.refused.Load() {
			w.restore()
		}
	case refusesUs(f):
		w.refuse(f)
	}
}

// refusesUs says whether the server refused who we are or what we may do. That an
// object may not be changed by anybody is not meant.
func refusesUs(f *failure) bool {
	return f.status != 0 && errors.Is(f.kind, ErrAccessDenied) && f.code != "FileImmutable"
}

func (w *accessWatch) refuse(f *failure) {
	reason := strconv.Itoa(f.status)
	if f.code != "" {
		reason = f.code + " (" + reason + ")"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.status.Reason = reason
	if w.mu.status.Refused {
		return
	}
	w.mu.status.Refused, w.mu.status.Since = true, time.Now()
	w.refused.Store(true)
	if w.tell() {
		w.log.Warn("the object store refuses access; what is cached is served on", "reason", reason, "request", f.requestID)
	}
}

func (w *accessWatch) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.status.Refused {
		return
	}
	since := w.mu.status.Since
	w.mu.status = AccessStatus{}
	w.refused.Store(false)
	if w.tell() {
		w.log.Info("the object store grants access again", "refused_for", time.Since(since).Round(time.Millisecond))
	}
}

// tell says whether a change is to be logged. The caller holds the lock.
func (w *accessWatch) tell() bool {
	if !w.granted.Load() || !w.mu.logged.IsZero() && time.Since(w.mu.logged) < w.every {
		return false
	}
	w.mu.logged = time.Now()
	return true
}

func (w *accessWatch) status() AccessStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.status
}

// Access says whether the server lets us in, as far as requests have shown. It makes
// none.
func (c *Client) Access() AccessStatus {
	if c == nil {
		return AccessStatus{}
	}
	return c.access.status()
}
