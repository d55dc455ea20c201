package attrs

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// The names of attributes in user metadata, as ossfs 1 writes them: decimal
// numbers, mtime in seconds.
const (
	metaMode  = "mode"
	metaUID   = "uid"
	metaGID   = "gid"
	metaMtime = "mtime"
	// metaNanos has the same with nanoseconds, see manifest.MetaMtime.
	metaNanos = manifest.MetaMtime
	// linkMode is the type of a symlink in a mode.
	linkMode = 0o120000
	// dirMode is that of a directory.
	dirMode  = 0o040000
	fileMode = 0o100000
	typeMask = 0o170000
)

// Attrs are what a file has beside its content. Mtime is in nanoseconds since
// 1970; 0 says that it is that of the content.
type Attrs struct {
	Mode, UID, GID uint32
	Mtime          int64
	// Set says that mode and owner were given, not assumed.
	Set bool
}

// Meta returns what the user metadata of a file or symlink is, over what an object had
// before. mtime is in nanoseconds since 1970.
func (a Attrs) Meta(before map[string]string, symlink bool, mtime int64) map[string]string {
	m := maps.Clone(before)
	if m == nil {
		m = make(map[string]string)
	}
	if a.Set || symlink {
		mode, kind := a.Mode, uint32(fileMode)
		if symlink {
			mode, kind = 0o777, linkMode
		}
		m[metaMode] = strconv.FormatUint(uint64(kind|mode&0o7777), 10)
		m[metaUID] = strconv.FormatUint(uint64(a.UID), 10)
		m[metaGID] = strconv.FormatUint(uint64(a.GID), 10)
	}
	setMtime(m, mtime)
	return m
}

// setMtime writes the time of the last write, in nanoseconds since 1970, into metadata.
func setMtime(m map[string]string, mtime int64) {
	t := time.Unix(0, mtime)
	m[metaMtime] = strconv.FormatInt(t.Unix(), 10)
	if delete(m, metaNanos); t.Nanosecond() != 0 {
		m[metaNanos] = fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
	}
}

// DropMtime takes the time of the last write out of metadata.
func DropMtime(m map[string]string) {
	delete(m, metaMtime)
	delete(m, metaNanos)
}

// Parse reads what ossfs 1 or Meta wrote.
func Parse(m map[string]string) Attrs {
	var a Attrs
	if mode, err := strconv.ParseUint(m[metaMode], 10, 32); err == nil {
		a.Mode, a.Set = uint32(mode)&0o7777, true
	}
	if uid, err := strconv.ParseUint(m[metaUID], 10, 32); err == nil {
		a.UID = uint32(uid)
	}
	if gid, err := strconv.ParseUint(m[metaGID], 10, 32); err == nil {
		a.GID = uint32(gid)
	}
	if mtime, err := strconv.ParseInt(m[metaMtime], 10, 64); err == nil && mtime > 0 && mtime < 1<<33 {
		a.Mtime = mtime * int64(time.Second)
		if t, ok := manifest.MtimeOf(m); ok && t.Unix() == mtime {
			a.Mtime = t.UnixNano()
		}
	}
	return a
}

// Of returns what the base tree knows of a name.
func Of(known *manifest.Attr) Attrs {
	var a Attrs
	if known.Known&manifest.AttrMode != 0 {
		a.Mode, a.Set = known.Mode&0o7777, true
	}
	if known.Known&manifest.AttrUID != 0 {
		a.UID = known.UID
	}
	if known.Known&manifest.AttrGID != 0 {
		a.GID = known.GID
	}
	if known.Known&manifest.AttrMTime != 0 {
		a.Mtime = known.MTime.UnixNano()
	}
	return a
}

// IsLink reports whether metadata says that an object is a symlink as ossfs 1 writes
// them.
func IsLink(m map[string]string) bool {
	mode, err := strconv.ParseUint(m[metaMode], 10, 32)
	return err == nil && mode&typeMask == linkMode
}

// Known returns a as the base tree would tell it, nil if it says nothing.
func (a Attrs) Known() *manifest.Attr {
	if !a.Set && a.Mtime == 0 {
		return nil
	}
	k := &manifest.Attr{}
	if a.Set {
		k.Mode, k.UID, k.GID = a.Mode, a.UID, a.GID
		k.Known = manifest.AttrMode | manifest.AttrUID | manifest.AttrGID
	}
	if a.Mtime != 0 {
		k.MTime = time.Unix(0, a.Mtime).UTC()
		k.Known |= manifest.AttrMTime
	}
	return k
}

// DirMeta returns what the user metadata of a directory's marker is, over what it had
// before.
func (a Attrs) DirMeta(before map[string]string) map[string]string {
	m := maps.Clone(before)
	if m == nil {
		m = make(map[string]string)
	}
	if a.Set {
		m[metaMode] = strconv.FormatUint(uint64(dirMode|a.Mode&0o7777), 10)
		m[metaUID] = strconv.FormatUint(uint64(a.UID), 10)
		m[metaGID] = strconv.FormatUint(uint64(a.GID), 10)
	}
	if a.Mtime != 0 {
		setMtime(m, a.Mtime)
	}
	return m
}
