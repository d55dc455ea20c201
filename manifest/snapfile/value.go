package snapfile

import (
	"encoding/binary"
	"math"
)

// AppendValue appends what r says beyond its item, for a file that does not outlive
// the program: it has no version. It is never empty.
func (r *Row) AppendValue(b []byte) []byte {
	class := byte(r.ETag.Form)
	if r.Symlink {
		class |= classSymlink
	}
	if r.HasCRC64 {
		class |= classCRC64
	}
	if r.Attr != nil {
		class |= classAttr
	}
	b = append(b, class)
	b = binary.AppendUvarint(b, uint64(r.Size))
	b = binary.AppendUvarint(b, timeNumber(r.ModTime))
	switch r.ETag.Form {
	case PartsETag:
		b = binary.AppendUvarint(b, r.ETag.Parts)
		fallthrough
	case SumETag:
		b = append(b, r.ETag.Sum[:]...)
	case TextETag:
		b = appendText(b, r.ETag.Text)
	case NoETag:
	}
	if r.HasCRC64 {
		b = binary.LittleEndian.AppendUint64(b, r.CRC64)
	}
	if r.Attr != nil {
		b = AppendAttr(b, r.Attr)
	}
	return b
}

// DecodeValue sets what AppendValue appended, and reports whether it could.
func (r *Row) DecodeValue(b []byte) bool {
	in := input{b: b}
	class := in.byte()
	r.Size = int64(in.length(math.MaxInt64))
	r.ModTime = numberTime(in.uvarint())
	r.ETag = ETag{Form: ETagForm(class & classForm)}
	switch r.ETag.Form {
	case PartsETag:
		r.ETag.Parts = in.uvarint()
		fallthrough
	case SumETag:
		copy(r.ETag.Sum[:], in.bytes(16))
	case TextETag:
		r.ETag.Text = in.text(MaxText)
	case NoETag:
	}
	r.Symlink = class&classSymlink != 0
	r.CRC64, r.HasCRC64, r.Attr = 0, class&classCRC64 != 0, nil
	if r.HasCRC64 {
		if sum := in.bytes(8); sum != nil {
			r.CRC64 = binary.LittleEndian.Uint64(sum)
		}
	}
	if class&classAttr != 0 {
		r.Attr = in.attr()
	}
	return in.done() == nil
}
