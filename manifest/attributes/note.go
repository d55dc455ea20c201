package attributes

import (
	"encoding/binary"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// A note is the time of the object in seconds, whether that is rough, and what its metadata
// said. Whoever keeps notes knows an object by its key and its bytes; one that another client
// made again of the same bytes, as ossfs does to change a mode, tells itself by its time alone.
const (
	noteVersion = 3 // those before had no time
	noteHead    = 1 + 1 + 8
	// noteRough is how far the time may be off of an object that was made here, see
	// [oss.Object.Same].
	noteRough = 60 // seconds
)

// encodeNote returns the note of obj. rough says that it was made here a moment ago.
func encodeNote(obj oss.Object, attr *manifest.Attr, rough bool) []byte {
	note := make([]byte, noteHead, noteHead+64)
	note[0] = noteVersion
	if rough {
		note[1] = 1
	}
	binary.LittleEndian.PutUint64(note[2:], uint64(obj.ModTime.Unix()))
	return append(note, manifest.EncodeAttr(attr)...)
}

// decodeNote returns what note says of obj, if it is of that version.
func decodeNote(note []byte, obj oss.Object) (*manifest.Attr, bool) {
	if len(note) < noteHead || note[0] != noteVersion {
		return nil, false
	}
	off := time.Unix(int64(binary.LittleEndian.Uint64(note[2:])), 0).Sub(obj.ModTime.Truncate(time.Second)).Abs()
	if off != 0 && (note[1] == 0 || off > noteRough*time.Second) {
		return nil, false
	}
	return manifest.DecodeAttr(note[noteHead:])
}
