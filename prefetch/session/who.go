package session

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Who is on whose behalf something is done. Two that are equal may do the same. The
// zero value is nobody, who may do nothing.
type Who struct {
	somebody bool
	// UID and GID are those of the process.
	UID, GID uint32
	// Groups are its supplementary groups.
	Groups Groups
	// Base is the directory of which it has a descriptor: to reach what lies below it,
	// nothing above it has to be searched.
	Base Base
}

// Base is a directory. The zero value is the root of the mount.
type Base struct {
	// Path is where it was. ID tells it from what may be there now; 0 is not known.
	Path string
	ID   uint64
}

// As returns a user who has a descriptor of the directory base.
func As(uid, gid uint32, groups Groups, base Base) Who {
	return Who{somebody: true, UID: uid, GID: gid, Groups: groups, Base: base}
}

// Root returns who may do everything.
func Root() Who { return As(0, 0, Groups{}, Base{}) }

// IsRoot reports whether w may do everything.
func (w Who) IsRoot() bool { return w.somebody && w.UID == 0 }

// Bits returns those of the permission bits of a file that are about w: read 4, write 2
// and search 1.
func (w Who) Bits(mode, uid, gid uint32) uint32 {
	switch {
	case !w.somebody:
		return 0
	case w.UID == 0:
		return 7
	case w.UID == uid:
		return mode >> 6 & 7
	case w.GID == gid || w.Groups.has(gid):
		return mode >> 3 & 7
	default:
		return mode & 7
	}
}

// Groups are a set of groups, which can be compared. The zero value is the empty one.
type Groups struct{ packed string }

// groupSize is how many bytes of packed a group takes.
const groupSize = 4

// GroupsOf returns the set of some groups.
func GroupsOf(ids []uint32) Groups {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	var b strings.Builder
	for _, id := range slices.Compact(ids) {
		b.Write(binary.BigEndian.AppendUint32(nil, id))
	}
	return Groups{b.String()}
}

func (g Groups) has(id uint32) bool {
	for p := g.packed; len(p) >= groupSize; p = p[groupSize:] {
		if binary.BigEndian.Uint32([]byte(p[:groupSize])) == id {
			return true
		}
	}
	return false
}
