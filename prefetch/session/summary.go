package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// File is what a holder is told of one path.
type File struct {
	Path string
	// State is unknown, requested, fetching, ready, active, streamed or failed.
	State string
	// Ready says of an active one whether all of its bytes are in the cache.
	Ready bool
	Files int64
	Bytes int64
	Err   error
	// Who has announced it.
	Who Who
}

// Status tells what has become of paths.
func (b *Book) Status(now time.Time, n Name, paths []string) ([]File, error) {
	s, err := b.of(now, n)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(paths))
	st := s.streams[n.Index]
	for i, path := range paths {
		f := &files[i]
		f.Path, f.State = path, "unknown"
		h := b.folders.find(st, path, n.Seq)
		if h == nil {
			continue
		}
		e := h.entry
		f.State, f.Ready, f.Files, f.Bytes, f.Err = e.state.String(), e.state == Ready, int64(len(e.Objects)), e.Bytes, e.Err
		f.Who = e.Who()
		if h.active && e.state != Failed && e.state != Streamed {
			f.State = "active"
		}
	}
	return files, nil
}

// Summary is one session at one moment.
type Summary struct {
	Task string `json:"task"`
	// Shared says that Task is a path in the mount.
	Shared  bool   `json:"-"`
	Worker  int    `json:"worker"`
	UID     uint32 `json:"uid"`
	Buffer  int    `json:"buffer"`
	Charged int64  `json:"charged_bytes"`
	// Idle is how many seconds ago its client called last, and Restored says that
	// the client has not come back since the daemon started.
	Idle     float64 `json:"idle_seconds"`
	Restored bool    `json:"restored,omitempty"`

	Requested Files `json:"requested"`
	Fetching  Files `json:"fetching"`
	Ready     Files `json:"ready"`
	Active    Files `json:"active"`
	Streamed  Files `json:"streamed"`
	Failed    Files `json:"failed"`
	Released  Files `json:"released"`
	Leaked    Files `json:"leaked"`
	Dropped   int64 `json:"dropped"`

	Streams []StreamSummary `json:"streams"`
}

// StreamSummary is one stream at one moment.
type StreamSummary struct {
	Index       int `json:"index"`
	Outstanding int `json:"outstanding"`
	Quota       int `json:"quota"`
}

// Summaries returns all sessions, in a fixed order.
func (b *Book) Summaries(now time.Time) []Summary {
	all := make([]Summary, 0, len(b.sessions))
	for _, s := range sorted(b.sessions) {
		all = append(all, s.summary(now, b.quota, Root().announced))
	}
	return all
}

// SummariesOf returns what one user is told of its sessions: bytes as Summary tells them, and
// no task of a session that was opened on another directory than who asks has. Not even
// root is told more, for root of a container is told by it.
func (b *Book) SummariesOf(now time.Time, user budget.User, who Who) []Summary {
	own := make([]Summary, 0)
	for _, s := range sorted(b.sessions) {
		if s.key.User() != user {
			continue
		}
		sum := s.summary(now, b.quota, func(other Who) bool { return other == who })
		if slices.ContainsFunc(s.whos, func(other Who) bool { return other.Base != who.Base }) {
			sum.Task = ""
		}
		own = append(own, sum)
	}
	return own
}

// Summary returns one session to who asks. All files are counted; bytes are of those that
// who has announced, so that nobody learns sizes by what another process of the user, which
// may see more of the mount, has found.
func (b *Book) Summary(now time.Time, id ID, who Who) (Summary, error) {
	s, err := b.session(now, id, who.UID)
	if err != nil {
		return Summary{}, err
	}
	return s.summary(now, b.quota, who.announced), nil
}

// announced reports whether w may know the bytes of what who has announced.
func (w Who) announced(who Who) bool { return w.IsRoot() || w == who }

func (s *session) summary(now time.Time, quota func(*stream) int, theirs func(Who) bool) Summary {
	sum := Summary{
		Shared: s.params.Shared,
		Task:   s.key.Task, Worker: s.key.Worker, UID: s.key.UID, Buffer: s.params.Buffer,
		Charged: s.charged, Idle: now.Sub(s.lastCall).Seconds(), Restored: s.restored,
		Released: s.released, Leaked: s.leaked, Dropped: s.dropped, Streams: []StreamSummary{},
	}
	for _, st := range s.sorted() {
		for _, h := range st.holders {
			into := &sum.Requested
			switch e := h.entry; {
			case e.state == Failed:
				into = &sum.Failed
			case e.state == Streamed:
				into = &sum.Streamed
			case h.active:
				into = &sum.Active
			case e.state == Fetching:
				into = &sum.Fetching
			case e.state == Ready:
				into = &sum.Ready
			}
			into.add(h.entry)
			if !theirs(h.entry.Who()) {
				into.Bytes -= h.entry.Bytes
			}
		}
		full := st.full
		sum.Streams = append(sum.Streams, StreamSummary{Index: st.index, Outstanding: st.outstanding, Quota: quota(st)})
		st.full = full // looking does not count as asking
	}
	if slices.ContainsFunc(s.whos, func(w Who) bool { return !theirs(w) }) {
		sum.Charged, sum.Released.Bytes, sum.Leaked.Bytes = 0, 0, 0
	}
	return sum
}

// Held is a holder as the persistence file keeps it.
type Held struct {
	// Folder is what the path begins with, up to a slash, and Path the rest: all of it where
	// Folder is "". Those in one folder share its text.
	Folder string `json:"-"`
	Path   string `json:"path"`
	Index  int    `json:"index,omitempty"`
	Seq    int    `json:"seq,omitempty"`

	order uint64
}

// SortHeld brings what Export returned into the order of announcement.
func SortHeld(held []Held) {
	slices.SortFunc(held, func(x, y Held) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.order, y.order))
	})
}

// TakeDirty returns the sessions of which something changed since it was called
// last.
func (b *Book) TakeDirty() []Key {
	keys := make([]Key, 0, len(b.dirty))
	for key := range b.dirty {
		keys = append(keys, key)
	}
	clear(b.dirty)
	return keys
}

// Dirty reports whether TakeDirty would return the session.
func (b *Book) Dirty(key Key) bool { return b.dirty[key] }

// Export returns what a session holds, in no order, for it is called where others
// wait (see [SortHeld]), and its parameters; false if there is no such session.
func (b *Book) Export(key Key) ([]Held, Params, bool) {
	s := b.byKey[key]
	if s == nil {
		return nil, Params{}, false
	}
	held := make([]Held, 0, s.holds())
	for _, st := range s.streams {
		for _, h := range st.holders {
			held = append(held, Held{Folder: h.use.name.in.path, Path: h.use.name.last, Index: st.index, Seq: h.use.seq, order: h.order})
		}
	}
	return held, s.params, true
}

// Params returns the parameters of a session; false if there is no such session.
func (b *Book) Params(key Key) (Params, bool) {
	s := b.byKey[key]
	if s == nil {
		return Params{}, false
	}
	return s.params, true
}

// Restore adds a session that a persistence file told of, unless there is one with
// its key. It waits for its worker for as long as Config.Adoption.
// What is more than may be remembered for the user is left out.
func (b *Book) Restore(now time.Time, id ID, key Key, p Params, held []Held) bool {
	if b.byKey[key] != nil {
		return false
	}
	if _, _, err := b.Open(now, id, key, p); err != nil {
		return false
	}
	s := b.byKey[key]
	s.restored, s.unseen = true, false
	for _, h := range held {
		st, err := b.stream(s, h.Index)
		if path := h.Folder + h.Path; err == nil && b.folders.find(st, path, h.Seq) == nil {
			_, err = b.hold(now, st, path, h.Seq, false)
		}
		if err != nil {
			break
		}
	}
	return true
}

// Forget says that nothing of a session that has ended was kept anywhere: then there is
// nothing to remove.
func (b *Book) Forget(key Key) {
	if b.byKey[key] == nil {
		delete(b.dirty, key)
	}
}
