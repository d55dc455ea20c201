package writeback

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// Discard gives up what is staged for path or below it; "" is everything, with what
// was set aside. agree is told beforehand what is lost, in no case more than that;
// its error, if any, is returned and nothing is changed. The journal says first what
// is given up, and then the bytes are removed: after a crash in between the next run
// removes them.
//
// A deletion that belongs to a renamed file that is given up is given up as well: the
// file stays where it was.
//
// Errors: those of [Inspect], [ErrNothing], that of agree, and those of the file
// system.
func Discard(dir, path string, agree func(lost []Staged) error) error {
	return discard(realDisk{}, dir, path, agree)
}

func discard(d disk, dir, path string, agree func(lost []Staged) error) error {
	l, err := openLeft(dir, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer l.close()
	lost := l.lost(path)
	if len(lost) == 0 && (path != "" || len(l.report.SetAside) == 0 && l.rest == 0) {
		if path == "" {
			return fmt.Errorf("%w in %q", ErrNothing, dir)
		}
		return fmt.Errorf("%w at %q", ErrNothing, path)
	}
	if err := agree(lost); err != nil {
		return err
	}
	if path == "" {
		return l.discardAll(d)
	}
	return l.discard(d, lost)
}

// lost returns what has to go with path.
func (l *left) lost(path string) []Staged {
	var lost []Staged
	files := make(map[order.FileID]bool)
	origins := make(map[string]bool)
	for _, list := range [][]Staged{l.report.Suspects, l.report.Unfinished, l.report.Pending} {
		for _, s := range list {
			if !covers(path, s.Path) || s.id != 0 && files[s.id] {
				continue
			}
			lost = append(lost, s)
			if s.id == 0 {
				continue
			}
			files[s.id] = true
			for _, key := range s.origins {
				origins[key] = true
			}
		}
	}
	// What a file was renamed from stays, and the directories that it was in.
	for _, s := range l.report.Pending {
		op := l.state.Ops[s.op]
		if op == nil || op.Kind != order.Delete || covers(path, s.Path) {
			continue
		}
		for key := range origins {
			if key == op.Key || key != "" && strings.HasSuffix(op.Key, "/") && strings.HasPrefix(key, op.Key) {
				lost = append(lost, s)
				break
			}
		}
	}
	return lost
}

// discardAll begins with a journal that knows nothing but whose it is.
func (l *left) discardAll(d disk) error {
	fresh := state.NewState()
	fresh.Identity, fresh.Uploads = l.state.Identity, l.state.Uploads
	fresh.NextFile, fresh.NextOp, fresh.NextOrder = l.state.NextFile, l.state.NextOp, l.state.NextOrder
	b, err := fresh.Snapshot(nil, nil)
	if err != nil {
		return err
	}
	if err := journal.Create(d, l.dir, b); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(l.dir, stagedDir))
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 16, 64); err == nil && len(e.Name()) == 16 {
			failed = errors.Join(failed, os.Remove(stagedPath(l.dir, id)))
		}
	}
	for _, name := range l.report.SetAside {
		failed = errors.Join(failed, os.RemoveAll(filepath.Join(l.dir, name)))
	}
	return failed
}

// discard appends to the journal that lost is given up. What the next run would
// decide about the rest is left to it.
func (l *left) discard(d disk, lost []Staged) error {
	was := state.NewState()
	if _, _, _, err := load(l.file, was); err != nil {
		return err
	}
	// What was in flight is not any more, but the run of the machine stays the one in
	// which all of it was written.
	group := &state.Group{Records: append(was.Successions(), &state.Boot{ID: was.Boot})}
	files := make(map[order.FileID]bool)
	for _, s := range lost {
		if f := was.Files[s.id]; f != nil && !files[s.id] {
			files[s.id] = true
			group.Records = append(group.Records, &state.Suspect{File: f.ID, Gen: f.Gen, Aside: true}, &state.Released{File: f.ID})
		}
	}
	for _, s := range lost {
		op := was.Ops[s.op]
		if op == nil || op.Kind == order.Put {
			continue
		}
		k := was.Keys[op.Key]
		group.Records = append(group.Records, &state.Done{Op: op.ID, Object: k.Remote})
		dir, base := op.Target()
		if n, ok := was.Lookup(dir, base); ok && n.Key == op.Key {
			group.Records = append(group.Records, &state.Forgotten{Dir: dir, Name: base})
		}
	}
	if l.rest > 0 {
		// The next run will not see that the journal was cut off.
		if _, err := orphans(l.dir, was, true); err != nil {
			return err
		}
		if _, err := journal.SetAside(d, l.dir, l.file, l.good, l.rest); err != nil {
			return err
		}
	}
	if _, err := l.file.WriteAt(state.Frame(nil, group), l.good); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := d.Sync(l.file); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	var failed error
	for _, id := range slices.Sorted(maps.Keys(files)) {
		if err := os.Remove(stagedPath(l.dir, id)); !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
