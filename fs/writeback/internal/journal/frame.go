package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The journal begins with its magic and version, and a checksum of the two.
const (
	magic      = "pailfswb"
	version    = 1
	headerSize = 16
	// frameSize is what a record has before its body: length and checksum.
	frameSize = 8
	// MaxBody bounds the body of a record, in bytes.
	MaxBody = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header returns what a journal begins with.
func Header() []byte {
	h := append(make([]byte, 0, headerSize), magic...)
	h = binary.LittleEndian.AppendUint32(h, version)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// checkHeader refuses what is not a journal that we know.
func checkHeader(h []byte) error {
	if len(h) < headerSize || string(h[:8]) != magic {
		return errors.New("it is not a journal of pailfs")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != version {
		return fmt.Errorf("its format has version %d, and this pailfs knows %d: use the pailfs that wrote it", v, version)
	}
	if binary.LittleEndian.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli) {
		return errors.New("its header is damaged")
	}
	return nil
}

// Frame appends a record as it stands in the journal; body appends what it says.
func Frame(b []byte, body func(b []byte) []byte) []byte {
	at := len(b)
	b = body(append(b, make([]byte, frameSize)...))
	written := b[at+frameSize:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(written)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(written, castagnoli))
	return b
}

// nextFrame returns the body of the record that b begins with, and what follows.
// ok is false where no whole record is: the end, or a torn or damaged tail.
func nextFrame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < frameSize {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > MaxBody || int64(n) > int64(len(b)-frameSize) {
		return nil, b, false
	}
	body = b[frameSize : frameSize+int(n)]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, false
	}
	return body, b[frameSize+int(n):], true
}
