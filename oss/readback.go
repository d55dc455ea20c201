package oss

import (
	"context"
	"errors"
	"net/http"
)

// readBackStep is how much of an object is read at a time to sum it up.
const readBackStep = 1 << 20

// ReadCRC64 reads all of o from r and returns the CRC-64/XZ of its bytes, whatever the
// server says that it is. The errors are those of [RangeReader].
func ReadCRC64(ctx context.Context, r RangeReader, o Object) (uint64, error) {
	buffer := make([]byte, min(o.Size, readBackStep))
	var crc uint64
	for at := int64(0); at < o.Size; at += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), o.Size-at)]
		if _, err := r.ReadRange(ctx, RangeRequest{Object: o, Offset: at, Buffer: buffer}); err != nil {
			return 0, err
		}
		crc = UpdateCRC64(crc, buffer)
	}
	return crc, nil
}

// readBack decides a dispute: an answer to an upload, with the header h, names another
// checksum than that of what was sent. nil means that the object holds what was sent, and
// that the answer is wrong. Otherwise it is doubt, or, if the key holds another version by
// now, why nothing can be said of ours.
func (v *view) readBack(ctx context.Context, doubt *failure, h http.Header, size int64, sent uint64) error {
	info, ok := fromAnswer(doubt.key, h, size)
	if !ok {
		return doubt
	}
	got, err := ReadCRC64(ctx, v, info.Object)
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, ErrNotFound):
		return err
	case err != nil || got != sent:
		return doubt
	}
	if c := v.client; c.mayComplain() {
		c.log.WarnContext(ctx, "the object store names a wrong checksum of an object that is right", "op", doubt.op, "key", doubt.key, "etag", info.ETag, "err", doubt)
	}
	return nil
}
