package control

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The numbers of the protocol. PROTOCOL.md derives and explains them.
const (
	// Version is the version of the protocol that this package speaks.
	Version = 1

	// BufferSize is the length in bytes of the ioctl's buffer, the same in both
	// directions. The size field of an ioctl number has 14 bits, so 16 KiB itself
	// does not fit; this is the largest multiple of eight that does.
	BufferSize = 16376

	// Command is the ioctl's number, _IOWR('p', 0xF5, BufferSize). Linux lists no
	// user of 'p' from 0xC0 up.
	Command = uint32(iocRead|iocWrite)<<30 | BufferSize<<16 | 'p'<<8 | 0xF5

	// MaxPayload is the largest request, and the largest piece of an answer, in
	// bytes.
	MaxPayload = BufferSize - headerSize

	iocWrite   = 1
	iocRead    = 2
	headerSize = 32
	magic      = "PAIL"
)

// kind says what a frame is.
type kind uint8

const (
	// kindCall starts a call; the payload is the request document.
	kindCall kind = 1
	// kindNext asks after the call named by the cursor, and for the bytes of its
	// answer from offset on.
	kindNext kind = 2
	// kindDrop cancels the call named by the cursor and forgets its answer.
	kindDrop kind = 3

	// kindLast carries the end of an answer document.
	kindLast kind = 0x81
	// kindMore carries a piece of an answer document that is not its last.
	kindMore kind = 0x82
	// kindWait says that the call still runs.
	kindWait kind = 0x83
)

// cursor names a call that was not answered by a single frame.
type cursor [16]byte

// frame is what one buffer holds.
type frame struct {
	version uint8
	kind    kind
	// offset is the position of the payload in the answer document; in kindNext,
	// the position of the first byte that is wanted; in kindWait, how many milliseconds
	// to wait before the next request.
	offset uint32
	cursor cursor
	// payload points into the buffer that was decoded.
	payload []byte
}

// The ways in which a buffer can fail to be a frame.
var (
	errMagic    = errors.New("the buffer does not begin with " + magic)
	errReserved = errors.New("reserved header bytes are not zero")
	errLength   = errors.New("the payload is longer than the buffer")
)

// encode writes f to buf, which must have BufferSize bytes, and clears the rest
// of it. It returns the number of bytes that mean something.
func (f frame) encode(buf []byte) int {
	_ = buf[BufferSize-1]
	copy(buf, magic)
	buf[4] = f.version
	buf[5] = uint8(f.kind)
	buf[6], buf[7] = 0, 0
	binary.LittleEndian.PutUint32(buf[8:], uint32(len(f.payload)))
	binary.LittleEndian.PutUint32(buf[12:], f.offset)
	copy(buf[16:headerSize], f.cursor[:])
	n := headerSize + copy(buf[headerSize:], f.payload)
	// The buffer was somebody else's before: nothing of that may leave with it.
	clear(buf[n:])
	return n
}

// decodeFrame reads the frame in buf. After any error but errMagic the version
// of the returned frame is still valid.
func decodeFrame(buf []byte) (frame, error) {
	if len(buf) < headerSize || string(buf[:4]) != magic {
		return frame{}, errMagic
	}
	f := frame{
		version: buf[4],
		kind:    kind(buf[5]),
		offset:  binary.LittleEndian.Uint32(buf[12:]),
		cursor:  cursor(buf[16:headerSize]),
	}
	if f.version != Version {
		// Another version may use the rest of the header as it likes.
		return f, fmt.Errorf("protocol version %d is not spoken here", f.version)
	}
	if buf[6] != 0 || buf[7] != 0 {
		return f, errReserved
	}
	length := binary.LittleEndian.Uint32(buf[8:])
	if uint64(length) > uint64(len(buf)-headerSize) {
		return f, errLength
	}
	f.payload = buf[headerSize : headerSize+int(length)]
	return f, nil
}
