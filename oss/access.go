package oss

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// AccessStatus says whether the server lets us in. The zero value means that it did
// when it was asked last.
type AccessStatus struct {
	// Refused says that the server refused who we are (the keys, the signature, the
	// token, the clock), or a right to three different names, and that no request has
	// succeeded since. A right to one name that is missing says nothing of the others.
	Refused bool
	// Since is when the first of these refusals came.
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
	// doubted: a right was refused since the last success.
	doubted atomic.Bool
	mu      struct {
		sync.Mutex
		status AccessStatus
		logged time.Time
		// names are the different ones that a right was refused to since the last
		// success, fewer than manyNames; doubt is when that began.
		names []string
		doubt time.Time
	}
}

// manyNames is to how many different names in a row, without a success between, a
// right must have been refused until it counts as refused for all.
const manyNames = 3

// identityCodes are the refusals of who we are. They hold for every request.
// Source: the error tables of the OSS API reference.
var identityCodes = map[string]bool{
	"InvalidAccessKeyId":    true,
	"AccessKeyIdNotFound":   true,
	"SignatureDoesNotMatch": true,
	"SecurityTokenExpired":  true,
	"InvalidSecurityToken":  true,
	"RequestTimeTooSkewed":  true,
	"UserDisable":           true,
}

// observe takes how a request about name, a key or a prefix, ended: nil for well.
func (w *accessWatch) observe(name string, f *failure) {
	switch {
	case f == nil:
		if !w.granted.Load() {
			w.granted.Store(true)
		}
		if w.refused.Load() || w.doubted.Load() {
			w.restore()
		}
	case refusesUs(f):
		w.refuse(name, f)
	}
}

// refusesUs says whether the server refused who we are or what we may do. That an
// object may not be changed by anybody is not meant.
func refusesUs(f *failure) bool {
	return f.status != 0 && errors.Is(f.kind, ErrAccessDenied) && f.code != "FileImmutable"
}

func (w *accessWatch) refuse(name string, f *failure) {
	reason := strconv.Itoa(f.status)
	if f.code != "" {
		reason = f.code + " (" + reason + ")"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Now()
	if !identityCodes[f.code] {
		var all bool
		if since, all = w.doubt(name, since); !all {
			return
		}
	}
	w.mu.status.Reason = reason
	if w.mu.status.Refused {
		return
	}
	w.mu.status.Refused, w.mu.status.Since = true, since
	w.refused.Store(true)
	if w.tell() {
		w.log.Warn("the object store refuses access; what is cached is served on", "reason", reason, "request", f.requestID)
	}
}

// doubt takes that a right to name was refused now. It returns since when rights are
// refused, and whether to so many names that it holds for all. The caller holds the
// lock.
func (w *accessWatch) doubt(name string, now time.Time) (since time.Time, all bool) {
	w.doubted.Store(true)
	if len(w.mu.names) == 0 {
		w.mu.doubt = now
	}
	if !slices.Contains(w.mu.names, name) {
		if len(w.mu.names) == manyNames-1 {
			return w.mu.doubt, true
		}
		w.mu.names = append(w.mu.names, name)
	}
	return w.mu.doubt, false
}

func (w *accessWatch) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.names = w.mu.names[:0]
	w.doubted.Store(false)
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
