package audit

import (
	"context"
	"encoding/json"
	"path"
	"time"

	pailfs "github.com/pailfs/pailfs/fs"
)

// The verbs of the control channel.
const (
	verbWarm   pailfs.Verb = "warm"
	verbEvict  pailfs.Verb = "evict"
	verbFlush  pailfs.Verb = "flush"
	verbDrain  pailfs.Verb = "drain"
	verbUmount pailfs.Verb = "umount"
	verbAccept pailfs.Verb = "accept"
	// verbCall is a call of another method, which is recorded if it was refused.
	verbCall pailfs.Verb = "call"
)

// verbOf returns the verb of a method of the control channel.
func verbOf(method string) pailfs.Verb {
	switch method {
	case "warm.add":
		return verbWarm
	case "evict", "flush", "drain", "umount", "accept":
		return pailfs.Verb(method)
	}
	return verbCall
}

// refused is the code of a call that the caller may not make.
const refused = "refused"

// mostPaths is how many paths of a call are recorded.
const mostPaths = 100

// parameters are what calls have in common with regard to the audit.
type parameters struct {
	Path  *string  `json:"path"`
	Base  string   `json:"base"`
	Paths []string `json:"paths"`
	// Begun and Result say that a client asks again how something goes on.
	Begun  time.Time `json:"begun"`
	Result bool      `json:"result"`
}

// Call begins the record of a call of the control channel. Of c the ids, the thread and the
// directory count. What it returns is to be called with the code of the answer. waits is
// asked whether the call may wait for room: those of the owner must not, or nobody could unmount.
func (l *Log) Call(ctx context.Context, c pailfs.Caller, method string, waits func() bool, params json.RawMessage) (answered func(code string)) {
	e := entry{
		Operation: pailfs.Operation{Verb: verbOf(method), UID: c.UID, GID: c.GID, Began: time.Now()},
		call:      &call{method: method},
	}
	end := func(code string) {
		e.call.code, e.Took = code, time.Since(e.Began)
		l.add(&e)
	}
	if e.Verb == verbCall {
		return func(code string) {
			if code == refused {
				e.Process = l.Process(c.TID)
				l.admitCall(ctx, waits)
				end(code)
			}
		}
	}
	var in parameters
	if json.Unmarshal(params, &in) == nil {
		if !in.Begun.IsZero() || in.Result {
			return func(string) {}
		}
		e.call.name(c.Dir, &in)
	}
	e.Process = l.Process(c.TID)
	l.admitCall(ctx, waits)
	return end
}

// admitCall admits a call: beyond the bound if it may not wait or was interrupted, which does
// not stop it.
func (l *Log) admitCall(ctx context.Context, waits func() bool) {
	if l.cfg.Full != Block || waits() && l.Admit(ctx) == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.admitted++
}

// name notes the paths that a call on a directory is about.
func (c *call) name(dir string, in *parameters) {
	paths := in.Paths
	if in.Path != nil {
		paths = append(paths, *in.Path)
	}
	c.more = max(0, len(paths)-mostPaths)
	for _, p := range paths[:len(paths)-c.more] {
		c.paths = append(c.paths, path.Join("/", dir, in.Base, p))
	}
}
