package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// SumSize is how many bytes one checksum of a manifest covers.
const SumSize = 1 << 20

// Manifest describes the files of one set. It travels to reading processes as
// a JSON file.
type Manifest struct {
	// Name is the name of the set. It is part of what the content is made from, so
	// that no two sets share a page.
	Name string `json:"name"`
	// Seed makes the content; 0 says that the data are real, and that only
	// checksums can tell whether a byte is right.
	Seed  uint64 `json:"seed,omitempty"`
	Files []File `json:"files"`
}

// File is one file of a set.
type File struct {
	// Name is the path below the set's root, and the object's key below the
	// set's prefix.
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Period is the length after which made content repeats; 0 means never.
	Period int64 `json:"period,omitempty"`
	// Sums are the CRC32C of each SumSize bytes, the last one of what remains.
	Sums []uint32 `json:"sums,omitempty"`
	// CRC64 is the CRC-64/XZ of the whole file, 0 when it was not worked out.
	CRC64 uint64 `json:"crc64,omitempty"`
}

// Bytes is the size of all files together.
func (m *Manifest) Bytes() int64 {
	var n int64
	for i := range m.Files {
		n += m.Files[i].Size
	}
	return n
}

// Content returns what makes the bytes of f, or false for real data.
func (m *Manifest) Content(f *File) (Content, bool) {
	if m.Seed == 0 {
		return Content{}, false
	}
	return NewContent(m.Seed, m.Name+"/"+f.Name, f.Period), true
}

// CheckSums compares every byte of p, which was read at offset, with the
// checksums of f. The offset must be a multiple of SumSize, and p must end
// there or at the end of the file.
func (f *File) CheckSums(p []byte, offset int64) error {
	if offset%SumSize != 0 {
		return fmt.Errorf("check %q: offset %d is not a multiple of %d", f.Name, offset, SumSize)
	}
	if offset+int64(len(p)) != f.Size && len(p)%SumSize != 0 {
		return fmt.Errorf("check %q: %d bytes at %d end within a checksum", f.Name, len(p), offset)
	}
	for len(p) > 0 {
		n := min(len(p), SumSize)
		i := offset / SumSize
		if i >= int64(len(f.Sums)) {
			return fmt.Errorf("check %q: no checksum for offset %d", f.Name, offset)
		}
		if got := Sum(p[:n]); got != f.Sums[i] {
			return fmt.Errorf("check %q: checksum at offset %d is %08x, want %08x", f.Name, offset, got, f.Sums[i])
		}
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

// Sum is the CRC32C of p.
func Sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes m to path.
func (m *Manifest) Save(path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest %q: %w", m.Name, err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("save manifest: %w", err)
	}
	return nil
}

// Load reads a manifest that Save wrote.
func Load(path string) (*Manifest, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("decode manifest %q: %w", path, err)
	}
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("decode manifest %q: %w", path, errors.New("it names no file"))
	}
	return &m, nil
}
