package writeback

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// span is where inline content stands in the journal.
type span struct{ record int64 }

// load replays a journal file into st. inline tells where the records are that hold
// the content of files.
func load(file *os.File, st *state.State) (inline map[order.FileID]span, good, rest int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	inline = make(map[order.FileID]span)
	good, rest, err = state.Replay(file, info.Size(), func(r state.Record, at int64) error {
		switch r := r.(type) {
		case *state.Closed:
			if r.HasInline {
				inline[r.File] = span{at}
			}
			r.Inline = nil
		case *state.SnapFile:
			if r.HasInline {
				inline[r.File.ID] = span{at}
			}
			r.Inline = nil
		}
		st.Apply(r)
		st.Tally.Counted = st.Tally.Counted[:0] // whoever goes on with st looks at all of it
		return nil
	})
	return inline, good, rest, err
}

// readSpan returns the content of f that a record holds.
func readSpan(file *os.File, f *state.File, at span) ([]byte, error) {
	body, ok, err := journal.ReadBody(file, at.record)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the record of %q is not where it was", order.Join(f.Dir, f.Name))
	}
	r, err := state.DecodeBody(body)
	if err != nil {
		return nil, err
	}
	switch r := r.(type) {
	case *state.Closed:
		return r.Inline, nil
	case *state.SnapFile:
		return r.Inline, nil
	}
	return nil, fmt.Errorf("the record of %q holds no content", order.Join(f.Dir, f.Name))
}

// orphans removes the staged files that no file of st has, or moves them to the
// directory kept.
func orphans(dir string, st *state.State, keep bool) (kept string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, stagedDir))
	if err != nil {
		return "", err
	}
	aside := filepath.Join(dir, stagedRest+strconv.FormatInt(now(), 10))
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), acceptEnding) {
			// What it is a copy of is there.
			if err := os.Remove(filepath.Join(dir, stagedDir, e.Name())); err != nil {
				return kept, err
			}
			continue
		}
		id, err := strconv.ParseUint(e.Name(), 16, 64)
		if err != nil || len(e.Name()) != 16 {
			continue
		}
		st.NextFile = max(st.NextFile, id+1)
		if f := st.Files[id]; f != nil && f.Staged {
			continue
		}
		if !keep {
			if err := os.Remove(stagedPath(dir, id)); err != nil {
				return kept, err
			}
			continue
		}
		kept = aside
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return kept, err
		}
		if err := os.Rename(stagedPath(dir, id), filepath.Join(aside, e.Name())); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// normalEndpoint makes spellings of one endpoint equal.
func normalEndpoint(e string) string {
	e = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(e)), "/")
	for _, scheme := range []string{"http://", "https://"} {
		e = strings.TrimPrefix(e, scheme)
	}
	return strings.Replace(e, "-internal.aliyuncs.com", ".aliyuncs.com", 1)
}
