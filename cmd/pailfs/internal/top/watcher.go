package top

import (
	"context"
	"slices"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/rates"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// watcher looks at mounts and remembers what it saw. It belongs to one goroutine.
type watcher struct {
	// only is the mount point that is watched; "" watches all.
	only     string
	patience time.Duration
	// list, looks and users are how it looks; tests have their own.
	list  func() ([]look.Mount, error)
	looks func(context.Context, []look.Mount, time.Duration) []look.Seen
	users func(mountpoint.Mount) []mountpoint.User
	// last is what the daemons said last, by mount point.
	last map[string]*wire.Status
	// left are looks that wait at mounts that hang.
	left map[string]look.Seen
}

func newWatcher(patience time.Duration) *watcher {
	return &watcher{
		patience: patience, list: look.List, looks: look.All, users: mountpoint.Users,
		last: map[string]*wire.Status{}, left: map[string]look.Seen{},
	}
}

// frame looks at all mounts.
func (w *watcher) frame(ctx context.Context) (Frame, error) {
	mounts, err := w.list()
	if err != nil {
		return Frame{}, err
	}
	mounts = slices.DeleteFunc(mounts, func(m look.Mount) bool {
		return m.Hidden || w.only != "" && m.Path != w.only
	})
	f := Frame{Time: time.Now(), Mounts: []Mount{}}
	for _, seen := range w.look(ctx, mounts) {
		f.Mounts = append(f.Mounts, w.mount(seen))
	}
	if w.only != "" && len(mounts) == 0 {
		f.Mounts = append(f.Mounts, Mount{MountPoint: w.only, Health: gone, Reasons: []string{"nothing is mounted there now"}}.Filled())
	}
	w.forget(mounts)
	return f, nil
}

// look looks at the mounts, in their order. One at which an earlier look still waits is not looked
// at again.
func (w *watcher) look(ctx context.Context, mounts []look.Mount) []look.Seen {
	waits := func(m look.Mount) bool {
		before, hung := w.left[m.Path]
		if !hung || before.Dev() != m.Dev() {
			return false
		}
		select {
		case <-before.Left:
			return false
		default:
			return true
		}
	}
	now := slices.DeleteFunc(slices.Clone(mounts), waits)
	fresh := w.looks(ctx, now, w.patience)
	var all []look.Seen
	for _, m := range mounts {
		i := slices.IndexFunc(now, func(n look.Mount) bool { return n.Path == m.Path })
		seen := w.left[m.Path]
		if i >= 0 {
			seen = fresh[i]
		}
		if seen.Left != nil {
			w.left[m.Path] = seen
		} else {
			delete(w.left, m.Path)
		}
		all = append(all, seen)
	}
	return all
}

// mount returns what is shown of a look.
func (w *watcher) mount(seen look.Seen) Mount {
	m := newMount(seen, w.users(seen.Mount.Mount))
	if seen.Status == nil {
		return m
	}
	if before := w.last[seen.Path]; before != nil {
		if r, ok := rates.Between(before, seen.Status); ok {
			m.Rates = &r
		}
	}
	w.last[seen.Path] = seen.Status
	return m
}

// forget drops what is known of mounts that are gone.
func (w *watcher) forget(mounts []look.Mount) {
	mounted := func(at string) bool {
		return slices.ContainsFunc(mounts, func(m look.Mount) bool { return m.Path == at })
	}
	for at := range w.last {
		if !mounted(at) {
			delete(w.last, at)
		}
	}
	for at := range w.left {
		if !mounted(at) {
			delete(w.left, at)
		}
	}
}
