package writeback

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// ErrNotStaging means that a directory is no staging directory.
var ErrNotStaging = errors.New("no staging directory of pailfs")

// Staged is one change that a staging directory holds and the object store does not.
type Staged struct {
	Path string `json:"path"`
	// Doing is upload, copy, delete or mkdir.
	Doing string `json:"doing"`
	// Bytes is the size of the content that is staged; for a copy that of the object.
	Bytes int64     `json:"bytes"`
	Since time.Time `json:"since,omitzero"`
	// File names the content in the directory staged, "" if there is none.
	File string `json:"file,omitempty"`
	// From is the key of the object that is to be copied.
	From string `json:"from,omitempty"`
	// Suspect: the disk lost some of the content. It is never published.
	Suspect bool `json:"suspect,omitempty"`
	// Unfinished: whoever wrote it never closed it. The next use of the directory drops
	// it.
	Unfinished bool `json:"unfinished,omitempty"`
	// Changed: it was written to after its last close or fsync. What came since is
	// not published for sure.
	Changed bool `json:"changed,omitempty"`
	// Partial: only what was written is staged, and the rest is that of the object Base, as
	// long as that is there.
	Partial bool   `json:"partial,omitempty"`
	Base    string `json:"base,omitempty"`
	// Replaced: another file has taken the name since. It is published before that, for
	// what was closed in between.
	Replaced bool `json:"replaced,omitempty"`

	id order.FileID
	op uint64
	// partial says which bytes are staged, if Partial.
	partial *state.Partial
	// origins are the keys of the objects that the file was made from, is a copy of, was
	// published as and lacks bytes of.
	origins [4]string
}

// Report is what a staging directory holds that nobody uses.
type Report struct {
	Dir string `json:"dir"`
	// Endpoint, Bucket and Prefix say where the changes belong. The endpoint has no
	// scheme.
	Endpoint string `json:"endpoint"`
	Bucket   string `json:"bucket"`
	Prefix   string `json:"prefix"`
	// Pending are the publications that are due, in their order.
	Pending []Staged `json:"pending"`
	// Suspects are files that the disk lost some of, Unfinished those that were open.
	Suspects   []Staged `json:"suspects,omitempty"`
	Unfinished []Staged `json:"unfinished,omitempty"`
	// Conflicts are changes that met somebody else's, the last hundred.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Uploads counts multipart uploads that are neither completed nor aborted.
	Uploads int `json:"uploads,omitempty"`
	// TornBytes follow the last good record of the journal: one that was being written,
	// or damage. SetAside are files of such bytes, and directories of staged files that
	// they may have spoken of, from before.
	TornBytes int64    `json:"torn_bytes,omitempty"`
	SetAside  []string `json:"set_aside,omitempty"`
}

// Same reports whether the changes belong to what endpoint, bucket and prefix say,
// however the endpoint is spelled.
func (r *Report) Same(endpoint, bucket, prefix string) bool {
	return r.Endpoint == normalEndpoint(endpoint) && r.Bucket == bucket && r.Prefix == prefix
}

// Inspect reads a staging directory that nobody uses, and changes nothing.
//
// Errors: [ErrNotStaging], [ErrInUse], [os.ErrNotExist], those of the file system, and
// one for a journal of another version.
func Inspect(dir string) (Report, error) {
	l, err := openLeft(dir, syscall.LOCK_SH)
	if err != nil {
		return Report{}, err
	}
	defer l.close()
	return l.report, nil
}

// left is a staging directory that nobody uses, as the next run would find it.
type left struct {
	dir  string
	lock *os.File
	file *os.File
	// good is the length of the journal's good part, rest that of what follows.
	good, rest int64
	inline     map[order.FileID]span
	// restored are files of which only a record has the content.
	restored map[order.FileID]bool
	// overlaid are suspect files of which a record has an earlier content, that lies
	// over what is left.
	overlaid map[order.FileID]bool
	state    *state.State
	report   Report
}

// openLeft locks and reads a staging directory.
func openLeft(dir string, how int) (*left, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	return openLeftAs(dir, how, boot)
}

func openLeftAs(dir string, how int, boot string) (_ *left, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	l := &left{dir: dir, state: state.NewState(), restored: make(map[order.FileID]bool), overlaid: make(map[order.FileID]bool)}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if _, err := os.Stat(filepath.Join(dir, journal.Name)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%q is %w: it has no %s", dir, ErrNotStaging, journal.Name)
	}
	mode := os.O_RDONLY
	if how == syscall.LOCK_EX {
		mode = os.O_RDWR
		l.lock, err = lockDir(dir, fmt.Sprintf("pailfs staged (process %d)", os.Getpid()))
	} else if l.lock, err = os.Open(filepath.Join(dir, lockName)); err == nil {
		err = flock(l.lock, dir, how)
	} else if errors.Is(err, os.ErrNotExist) {
		l.lock, err = nil, nil // a copy of a directory may lack it
	}
	if err != nil {
		return nil, err
	}
	if l.file, err = os.OpenFile(filepath.Join(dir, journal.Name), mode, 0); err != nil {
		return nil, err
	}
	if l.inline, l.good, l.rest, err = load(l.file, l.state); err == nil {
		err = l.judge(boot)
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", dir, err)
	}
	return l, nil
}

func (l *left) close() {
	for _, f := range []*os.File{l.file, l.lock} {
		if f != nil {
			f.Close() //nolint:errcheck // what was written was synced
		}
	}
}

// judge does with the state what the next run would do, and writes the report.
func (l *left) judge(boot string) error {
	st := l.state
	rebooted := st.Boot != boot
	for _, r := range st.Successions() {
		st.Apply(r)
	}
	st.Apply(&state.Boot{ID: boot})
	r := &l.report
	for _, id := range slices.Sorted(maps.Keys(st.Files)) {
		f := st.Files[id]
		_, has := l.inline[id]
		what, err := judge(f, stagedPath(l.dir, id), st.KeptOf[id] != 0, has, rebooted)
		if err != nil {
			return err
		}
		if back := goBack(f, what, st.KeptOf[id] != 0, rebooted); back != nil {
			st.Apply(back)
		}
		if cut, err := cutShort(f, stagedPath(l.dir, id)); err != nil {
			return err
		} else if cut != nil {
			st.Apply(cut)
		}
		switch what {
		case fateReleased:
			st.Apply(&state.Released{File: id})
		case fateReverted:
			if s := l.staged(f); s.Changed {
				s.Unfinished, s.Changed = true, false
				r.Unfinished = append(r.Unfinished, s)
			}
			st.Apply(&state.Reverted{File: id, Time: now()})
		case fateAdopted:
			st.Apply(&state.Adopted{File: id})
		case fateRestored:
			l.restored[id] = true
		case fateLost:
			recorded, aside, err := whatIsLost(f, stagedPath(l.dir, id), l.inline)
			if err != nil {
				return err
			}
			l.overlaid[id] = recorded
			if aside || st.KeptOf[id] != 0 {
				st.Apply(st.Aside(f, st.NextFile, now()))
			} else {
				st.Apply(&state.Suspect{File: id, Gen: f.Gen})
			}
		case fateStays, fateUndurable:
		}
		if st.Files[id] != nil && f.IsSuspect() {
			r.Suspects = append(r.Suspects, l.staged(f))
		}
	}
	r.Dir, r.Endpoint, r.Bucket, r.Prefix = l.dir, st.Identity.Endpoint, st.Identity.Bucket, st.Identity.Prefix
	r.Uploads, r.TornBytes = len(st.Uploads), l.rest
	r.Pending = l.pending()
	for _, c := range st.Conflicts {
		r.Conflicts = append(r.Conflicts, Conflict{Path: c.Path, Kept: c.Kept, Time: time.Unix(0, c.At).UTC()})
	}
	for _, prefix := range []string{journal.RestPrefix, stagedRest} {
		aside, err := filepath.Glob(filepath.Join(escapeGlob(l.dir), prefix+"*"))
		if err != nil {
			return err
		}
		for _, name := range aside {
			r.SetAside = append(r.SetAside, filepath.Base(name))
		}
	}
	return nil
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// pending returns the operations in their order.
func (l *left) pending() []Staged {
	pending := []Staged{}
	for op := range l.state.Queue.All() {
		s := Staged{Path: strings.TrimSuffix(order.Join(op.Dir, op.Name), "/"), Doing: op.Kind.String()}
		if f := l.state.Files[op.File]; f != nil && op.Kind == order.Put {
			path := s.Path
			s = l.staged(f)
			s.Path, s.Replaced = path, l.state.Kept[op.ID]
		}
		s.Since, s.op = time.Unix(0, op.At).UTC(), op.ID
		pending = append(pending, s)
	}
	return pending
}

// staged describes the content of f.
func (l *left) staged(f *state.File) Staged {
	s := Staged{Path: order.Join(f.Dir, f.Name), Doing: order.Put.String(), Bytes: max(f.Size, 0), Suspect: f.IsSuspect(), id: f.ID, origins: [4]string{f.Object.Key, f.Origin.Key, f.Published.Key}}
	if !f.Staged {
		s.Doing, s.Bytes, s.From = "copy", f.Object.Size, f.Object.Key
		return s
	}
	s.File = fmt.Sprintf("%016x", f.ID)
	if f.Partial != nil {
		s.Partial, s.Base, s.partial = true, f.Partial.Base.Key, f.Partial
		s.origins[3] = f.Partial.Base.Key
	}
	if l.restored[f.ID] {
		return s
	}
	stamp, size, err := stampOf(stagedPath(l.dir, f.ID))
	switch {
	case err != nil:
		s.Bytes = 0
	default:
		s.Bytes, s.Changed = size, stamp != f.Stamp || size != f.Size
	}
	s.Since = time.Unix(0, f.Stamp).UTC()
	return s
}
