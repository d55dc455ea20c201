package look

import (
	"slices"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

// Mount is a mount of pailfs in the mount table.
type Mount struct {
	mountpoint.Mount
	// Hidden says that another mount lies over it, so that its path leads elsewhere.
	Hidden bool
}

// List returns the mounts of pailfs that this process's mount namespace has, in the order of
// mounting. It touches none of them.
func List() ([]Mount, error) {
	table, err := mountpoint.List()
	if err != nil {
		return nil, err
	}
	return choose(table), nil
}

// choose returns the mounts of pailfs in the table.
func choose(table []mountpoint.Mount) (mounts []Mount) {
	for i, m := range table {
		if m.Type != mountpoint.Type {
			continue
		}
		over := func(later mountpoint.Mount) bool { return mountpoint.Within(later.Path, m.Path) }
		mounts = append(mounts, Mount{m, slices.ContainsFunc(table[i+1:], over)})
	}
	return mounts
}
