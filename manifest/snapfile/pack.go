package snapfile

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// How a part is packed.
const (
	packedNot = iota
	packedZstd
)

// packer compresses parts. It is not safe for concurrent use.
type packer struct {
	encoder *zstd.Encoder
	scratch []byte
}

func newPacker() (*packer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	return &packer{encoder: e}, nil
}

// pack appends raw, compressed if it is larger than plain bytes and that makes it
// smaller.
func (p *packer) pack(b, raw []byte, plain int) []byte {
	if len(raw) > plain {
		p.scratch = p.encoder.EncodeAll(raw, p.scratch[:0])
	}
	if len(raw) <= plain || len(p.scratch) >= len(raw) {
		b = append(b, packedNot)
		b = binary.AppendUvarint(b, uint64(len(raw)))
		return append(b, raw...)
	}
	b = append(b, packedZstd)
	b = binary.AppendUvarint(b, uint64(len(raw)))
	return append(b, p.scratch...)
}

// unpacker is the inverse. It is safe for concurrent use. It owns no goroutine, so
// that it need not be closed, which would not be safe while it is used.
type unpacker struct {
	decoder *zstd.Decoder
	// buffers holds *[]byte.
	buffers sync.Pool
}

func newUnpacker() (*unpacker, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxExtras))
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	return &unpacker{decoder: d, buffers: sync.Pool{New: func() any { return new([]byte) }}}, nil
}

// unpack calls f with what payload was before it was packed, of at most limit
// bytes. f must not keep it.
func (u *unpacker) unpack(payload []byte, limit int, f func(in *input) error) error {
	in := input{b: payload}
	how := in.byte()
	n := in.length(uint64(limit))
	switch {
	case in.bad || how > packedZstd:
		return errMalformed
	case how == packedNot:
		if n != uint64(len(in.b)) {
			return errMalformed
		}
		return f(&in)
	}
	// A frame that says it holds more than was said before it is not begun with.
	var h zstd.Header
	if err := h.Decode(in.b); err != nil || !h.HasFCS || h.FrameContentSize != n {
		return errMalformed
	}
	buffer := u.buffers.Get().(*[]byte)
	defer u.buffers.Put(buffer)
	if uint64(cap(*buffer)) < n {
		*buffer = make([]byte, 0, n)
	}
	raw, err := u.decoder.DecodeAll(in.b, (*buffer)[:0])
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	*buffer = raw[:0]
	if uint64(len(raw)) != n {
		return errMalformed
	}
	return f(&input{b: raw})
}
