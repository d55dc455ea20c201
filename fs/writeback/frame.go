package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The journal begins with its magic and version, and a checksum of the two.
const (
	journalMagic   = "pailfswb"
	journalVersion = 1
	headerSize     = 16
	// frameSize is what a record has before its body: length and checksum.
	frameSize = 8
	// maxRecord bounds the body of a record, in bytes.
	maxRecord = 256 << 20
	// idleBuffer is the largest buffer that is kept for the next records, in bytes.
	idleBuffer = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func journalHeader() []byte {
	h := append(make([]byte, 0, headerSize), journalMagic...)
	h = binary.LittleEndian.AppendUint32(h, journalVersion)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// checkHeader refuses what is not a journal that we know.
func checkHeader(h []byte) error {
	if len(h) < headerSize || string(h[:8]) != journalMagic {
		return errors.New("it is not a journal of pailfs")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != journalVersion {
		return fmt.Errorf("its format has version %d, and this pailfs knows %d: use the pailfs that wrote it", v, journalVersion)
	}
	if binary.LittleEndian.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli) {
		return errors.New("its header is damaged")
	}
	return nil
}

// frame appends r as it stands in the journal.
func frame(b []byte, r record) []byte {
	at := len(b)
	b = appendBody(append(b, make([]byte, frameSize)...), r)
	body := b[at+frameSize:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(body, castagnoli))
	return b
}

// nextFrame returns the body of the record that b begins with, and what follows.
// ok is false where no whole record is: the end, or a torn or damaged tail.
func nextFrame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < frameSize {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecord || int64(n) > int64(len(b)-frameSize) {
		return nil, b, false
	}
	body = b[frameSize : frameSize+int(n)]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, false
	}
	return body, b[frameSize+int(n):], true
}
