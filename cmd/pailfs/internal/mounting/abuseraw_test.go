//go:build !race

package mounting

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/prefetch/control"
)

// A frame as prefetch/control/PROTOCOL.md has it, written here anew: the package's own would not write those
// that are wrong.
const (
	rawHeader = 32

	rawCall, rawNext, rawDrop = 1, 2, 3
	rawLast, rawMore, rawWait = 0x81, 0x82, 0x83
)

// rawFrame is what is put into the buffer of an ioctl.
type rawFrame struct {
	command       uint32
	magic         string
	version, kind byte
	reserved      uint16
	// length is what the header says of the payload.
	length, offset uint32
	cursor         [16]byte
	payload        []byte
}

// callFrame begins a call.
func callFrame(method string, params anyParams) (rawFrame, error) {
	document := anyParams{"method": method}
	if params != nil {
		document["params"] = params
	}
	payload, err := json.Marshal(document)
	return rawFrame{command: control.Command, magic: "PAIL", version: control.Version, kind: rawCall, length: uint32(len(payload)), payload: payload}, err
}

// send makes the ioctl and returns the buffer.
func (r rawFrame) send(dir *os.File) ([]byte, unix.Errno) {
	buf := make([]byte, 1<<14) // the most that an ioctl's number can ask for
	copy(buf, r.magic)
	buf[4], buf[5] = r.version, r.kind
	binary.LittleEndian.PutUint16(buf[6:], r.reserved)
	binary.LittleEndian.PutUint32(buf[8:], r.length)
	binary.LittleEndian.PutUint32(buf[12:], r.offset)
	copy(buf[16:rawHeader], r.cursor[:])
	copy(buf[rawHeader:], r.payload)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), uintptr(r.command), uintptr(unsafe.Pointer(&buf[0])))
	runtime.KeepAlive(buf)
	return buf[:control.BufferSize], errno
}

// bend makes a frame that is wrong somewhere, or right and out of place.
func (f *fuzzed) bend(r rawFrame) rawFrame {
	for range 1 + f.rng.IntN(3) {
		switch f.rng.IntN(10) {
		case 0:
			r.length = []uint32{0, 1, uint32(f.rng.IntN(1 << 14)), control.MaxPayload, control.MaxPayload + 1, 1 << 31, 1<<32 - 1}[f.rng.IntN(7)]
		case 1: // the end of the document is missing
			r.payload = r.payload[:f.rng.IntN(len(r.payload)+1)]
			r.length = uint32(len(r.payload))
		case 2:
			if len(r.payload) > 0 {
				r.payload[f.rng.IntN(len(r.payload))] ^= 1 << f.rng.IntN(8)
			}
		case 3: // documents that are small, and large when they are read
			r.payload = []byte([]string{
				strings.Repeat("[", control.MaxPayload), strings.Repeat(`{"a":`, control.MaxPayload/5),
				`{"method":"measure","params":{"paths":[` + strings.Repeat(`"",`, 5000) + `""]}}`,
				`{"method":"` + strings.Repeat(`\u0000`, 2700) + `"}`,
				`{"method":"loader.open","params":{"buffer":1e999,"lease_seconds":-1}}`,
			}[f.rng.IntN(5)])
			r.payload = r.payload[:min(len(r.payload), control.MaxPayload)]
			r.length = uint32(len(r.payload))
		case 4:
			r.kind = byte(f.rng.IntN(256))
		case 5:
			r.version, r.reserved = byte(f.rng.IntN(3)), uint16(f.rng.IntN(2))
		case 6:
			r.magic = []string{"PAIL", "pail", "\x00\x00\x00\x00", "PAI"}[f.rng.IntN(4)]
		case 7: // another ioctl, of any size
			r.command = []uint32{f.rng.Uint32(), control.Command ^ 1<<f.rng.IntN(32), 0x5401}[f.rng.IntN(3)]
		default: // asks after an answer, or drops it, at any place
			r.kind = []byte{rawNext, rawDrop}[f.rng.IntN(2)]
			r.offset = []uint32{0, uint32(f.rng.IntN(1 << 22)), 1<<32 - 1}[f.rng.IntN(3)]
			if len(f.cursors) > 0 {
				r.cursor = f.cursors[f.rng.IntN(len(f.cursors))]
			}
		}
	}
	return r
}

// rawErrnos are what the kernel and the daemon say of an ioctl that is none of ours.
var rawErrnos = []unix.Errno{0, unix.EINVAL, unix.ENOTTY, unix.EINTR, unix.EFAULT, unix.EBADF, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP}

// raw sends a frame by hand, mostly a wrong one. What comes back is a frame or an error.
func (f *fuzzed) raw(dir *os.File, method string, params anyParams) error {
	r, err := callFrame(method, params)
	if err != nil {
		return err
	}
	if f.rng.IntN(8) != 0 {
		r = f.bend(r)
	}
	answer, errno := r.send(dir)
	switch {
	case !slices.Contains(rawErrnos, errno):
		return fmt.Errorf("frame %d of ioctl %#x: %w", r.kind, r.command, errno)
	case errno != 0 || r.command != control.Command:
		return nil
	}
	kind, length := answer[5], binary.LittleEndian.Uint32(answer[8:])
	switch {
	case string(answer[:4]) != "PAIL" || kind < rawLast || kind > rawWait || length > control.MaxPayload:
		return fmt.Errorf("frame %d is answered by no frame: %q", r.kind, answer[:rawHeader])
	case kind == rawLast && binary.LittleEndian.Uint32(answer[12:]) == 0 && !json.Valid(answer[rawHeader:rawHeader+length]):
		return fmt.Errorf("frame %d is answered by what is no JSON: %q", r.kind, answer[rawHeader:rawHeader+length])
	case kind != rawLast:
		// The answer is fetched by chance, or never.
		f.cursors = append(f.cursors, [16]byte(answer[16:rawHeader]))
	}
	return nil
}
