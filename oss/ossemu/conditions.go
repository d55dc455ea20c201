package ossemu

import (
	"net/http"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// conditions are the preconditions of a request, by header.
type conditions struct {
	match, noneMatch, modifiedSince, unmodifiedSince string
}

// readConditions are those of a GET or HEAD.
func (q *request) readConditions() conditions {
	h := q.r.Header
	return conditions{h.Get("If-Match"), h.Get("If-None-Match"), h.Get("If-Modified-Since"), h.Get("If-Unmodified-Since")}
}

// copyConditions are those on the source of a copy.
func (q *request) copyConditions() conditions {
	return conditions{
		q.header("Copy-Source-If-Match"), q.header("Copy-Source-If-None-Match"),
		q.header("Copy-Source-If-Modified-Since"), q.header("Copy-Source-If-Unmodified-Since"),
	}
}

// check compares an object with the conditions, in the order of the service. A
// date that cannot be read is no condition.
func (c conditions) check(o *store.Object) *failure {
	if c == (conditions{}) {
		return nil
	}
	if c.match != "" && !matchesETag(c.match, o) {
		return errPreconditionFailed.with("Condition", "If-Match")
	}
	if t, ok := parseDate(c.unmodifiedSince); ok && o.ModTime().After(t) {
		return errPreconditionFailed.with("Condition", "If-Unmodified-Since")
	}
	if c.noneMatch != "" {
		if matchesETag(c.noneMatch, o) {
			return errNotModified
		}
		return nil
	}
	if t, ok := parseDate(c.modifiedSince); ok && !o.ModTime().After(t) {
		return errNotModified
	}
	return nil
}

// matchesETag compares one tag, several with commas between, or "*".
func matchesETag(list string, o *store.Object) bool {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" || store.SameETag(tag, o.ETag()) {
			return true
		}
	}
	return false
}

func parseDate(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, false
	}
	t, err := http.ParseTime(text)
	return t, err == nil
}
