package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss"
)

var (
	// ErrNone means that nothing is published under the prefix.
	ErrNone = errors.New("no manifest is published")
	// ErrLost means that another publisher took the generation's number first.
	ErrLost = errors.New("another publisher was faster")
	// ErrPointer means that what latest says cannot be used.
	ErrPointer = errors.New("cannot use what is published")
)

// Facts are what a manifest's publisher says of it.
type Facts struct {
	// Number is the generation. Numbers begin at 1 and only grow.
	Number uint64 `json:"generation"`
	// Objects and Bytes are how many objects the manifest names, and their sizes
	// together.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Began and Ended are when the bucket was looked at.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Published is when the file was put into the bucket.
	Published time.Time `json:"published"`
	// Publisher names who did it.
	Publisher string `json:"publisher,omitempty"`
}

// Generation is one published manifest.
type Generation struct {
	Facts
	// Object is the version of the object that holds the file.
	Object oss.Object
	// CRC64 is the CRC-64/XZ of the file.
	CRC64 uint64
}

const (
	// Directory is where manifests lie, below the prefix that they tell of.
	Directory = ".pailfs/manifests/"
	// pointerName is the object that points to the newest generation.
	pointerName = "latest"
	// suffix ends the names of generations, before it is the number in numberDigits
	// digits, so that their order is that of the numbers.
	suffix       = ".manifest"
	numberDigits = 20
	// metaName is the user metadata that holds what is said of an object.
	metaName = "pailfs-manifest"
	// format is the version of what metaName holds.
	format = 1
)

// Key returns the key of a generation of the manifest of prefix, which is empty or
// ends with a slash.
func Key(prefix string, number uint64) string {
	return fmt.Sprintf("%s%s%0*d%s", prefix, Directory, numberDigits, number, suffix)
}

// pointerKey returns the key of the pointer.
func pointerKey(prefix string) string { return prefix + Directory + pointerName }

// numberOf returns the generation that key holds.
func numberOf(prefix, key string) (uint64, bool) {
	digits, ok := strings.CutSuffix(strings.TrimPrefix(key, prefix+Directory), suffix)
	if !ok || len(digits) != numberDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// pointer is what the metadata holds: of a generation the facts and its checksum,
// of latest the identity of the generation's object as well.
type pointer struct {
	Format int `json:"format"`
	Facts
	CRC64    uint64    `json:"crc64,string"`
	ETag     string    `json:"etag,omitempty"`
	Size     int64     `json:"size,omitempty"`
	Modified time.Time `json:"modified,omitzero"`
}

// encode returns p as it stands in metadata: JSON in ASCII.
func (p pointer) encode() (string, error) {
	p.Format = format
	p.Publisher = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, p.Publisher)
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode pointer: %w", err)
	}
	return string(text), nil
}

// decodePointer reads the metadata of the object at key.
func decodePointer(info *oss.Info) (pointer, error) {
	text, ok := info.Meta[metaName]
	if !ok {
		return pointer{}, fmt.Errorf("%w: %q has no metadata %q: publish again with pailfs manifest build", ErrPointer, info.Key, metaName)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return pointer{}, fmt.Errorf("%w: the metadata of %q is no JSON (%w): publish again with pailfs manifest build", ErrPointer, info.Key, err)
	}
	if version.Format != format {
		return pointer{}, fmt.Errorf("%w: %q has format %d, and this version of pailfs knows %d: use the version that published it", ErrPointer, info.Key, version.Format, format)
	}
	var p pointer
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.Number == 0 {
		return pointer{}, fmt.Errorf("%w: the metadata of %q is not complete: publish again with pailfs manifest build", ErrPointer, info.Key)
	}
	return p, nil
}
