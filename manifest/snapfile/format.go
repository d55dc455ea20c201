package snapfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// manifest/FORMAT.md explains these.
const (
	headerMagic  = "pailfsMF"
	trailerMagic = "MFe\n"
	headerSize   = 32
	trailerSize  = 40
	crcSize      = 4

	// Version is the version of the format that is written, and the only one that
	// is read.
	Version = 1

	// blockRows is how many rows a block holds, and how many directories one of the
	// directory table. All but the last are full.
	blockRows = 256
	// pageBlocks is how many blocks a page of an index tells of.
	pageBlocks = 256

	// MaxKey is the longest key in bytes that a file holds.
	MaxKey = 4096
	// MaxText bounds the bytes of an ETag that is not of the usual form.
	MaxText = 1024
	// MaxAttr bounds the bytes of the encoded attributes of one row.
	MaxAttr = 64 << 10

	// The longest payloads that a reader believes in, before compression.
	maxNames  = 1 + blockRows*(1+2*binary.MaxVarintLen32+MaxKey)
	maxExtras = blockRows * (MaxText + MaxAttr + 16)
	maxFixed  = 1 << 16
	maxPage   = 2 << 20
	maxDirs   = maxNames + 1<<16
)

// kind is what a part of the file is. Its checksum covers it.
type kind uint8

const (
	kindNames kind = iota
	kindFixed
	kindExtras
	kindDirs
	kindRowPage
	kindDirPage
	kindFooter
	numKinds
)

func (k kind) String() string {
	return [...]string{
		"names", "attributes", "further attributes", "directory table", "index", "index of directories", "footer", "unknown part",
	}[min(k, numKinds)]
}

// Errors that say why a file is not read.
var (
	// ErrDamaged is what every [DamageError] is.
	ErrDamaged = errors.New("manifest is damaged")
	// ErrVersion is that of a file of a version that this program does not read.
	ErrVersion = errors.New("manifest has a version that this program does not read")
)

// DamageError says that a manifest is not as it was written.
type DamageError struct {
	// File is the name of the file.
	File string
	// Offset is where in it, in bytes, the part begins that is damaged.
	Offset int64
	// What is wrong.
	What string
	// Err is what reading gave, if it failed.
	Err error
}

// Error implements error.
func (e *DamageError) Error() string {
	what := e.What
	if e.Err != nil {
		what += ": " + e.Err.Error()
	}
	return fmt.Sprintf("manifest %s is damaged at byte %d: %s; fetch it again, or build a new one with `pailfs manifest build`", e.File, e.Offset, what)
}

// Is makes every DamageError an [ErrDamaged].
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns what reading gave.
func (e *DamageError) Unwrap() error { return e.Err }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumOf returns the checksum of bytes that are in one place only.
func checksumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// checksum returns the checksum of a part: that of its bytes, its kind, its
// number among its kind, and the file it belongs to, so that a part in a wrong
// place does not pass.
func checksum(file uint64, k kind, number uint64, payload []byte) uint32 {
	var place [17]byte
	binary.LittleEndian.PutUint64(place[0:], file)
	binary.LittleEndian.PutUint64(place[8:], number)
	place[16] = byte(k)
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, payload)
}

// errMalformed is for decoders, which do not know where they are.
var errMalformed = errors.New("malformed")

// input is what remains to be decoded. After its first error it is empty and
// stays so.
type input struct {
	b   []byte
	bad bool
}

func (in *input) fail() { in.b, in.bad = nil, true }

func (in *input) uvarint() uint64 {
	v, n := binary.Uvarint(in.b)
	if n <= 0 {
		in.fail()
		return 0
	}
	in.b = in.b[n:]
	return v
}

func (in *input) varint() int64 {
	v, n := binary.Varint(in.b)
	if n <= 0 {
		in.fail()
		return 0
	}
	in.b = in.b[n:]
	return v
}

// bytes returns the next n bytes, which are part of the input.
func (in *input) bytes(n uint64) []byte {
	if n > uint64(len(in.b)) {
		in.fail()
		return nil
	}
	b := in.b[:n:n]
	in.b = in.b[n:]
	return b
}

func (in *input) byte() byte {
	if b := in.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// text returns a string with its length before it, of at most limit bytes.
func (in *input) text(limit int) string {
	n := in.uvarint()
	if n > uint64(limit) {
		in.fail()
		return ""
	}
	return string(in.bytes(n))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// done returns an error unless everything was decoded, and nothing remains.
func (in *input) done() error {
	if in.bad || len(in.b) > 0 {
		return errMalformed
	}
	return nil
}
