package store

// The kinds of records. FORMAT.md describes each; the numbers must not change
// their meaning without a new formatVersion.
const (
	recordHeader       = 1
	recordBucket       = 2
	recordBucketGone   = 3
	recordObject       = 4
	recordObjectGone   = 5
	recordUpload       = 6
	recordPart         = 7
	recordUploadGone   = 8
	recordSnapshotDone = 9
)

const (
	formatMagic   = "pailfs ossemu index"
	formatVersion = 1
)

func encodeHeader(e *encoder) {
	e.byte(recordHeader)
	e.string(formatMagic)
	e.uint(formatVersion)
}

func encodeBucket(e *encoder, b *Bucket) {
	e.byte(recordBucket)
	e.string(b.Name)
	e.uint(uint64(b.Created.Unix()))
	e.string(b.ACL)
	e.string(b.StorageClass)
	e.string(b.Redundancy)
}

func encodeBucketGone(e *encoder, name string) {
	e.byte(recordBucketGone)
	e.string(name)
}

// encodeObject writes an object that becomes the value of key. An upload that
// ends with it, if any, is named, so that both happen at once.
func encodeObject(e *encoder, bucket, key string, o *Object, upload string) {
	e.byte(recordObject)
	e.string(bucket)
	e.string(key)
	e.string(upload)
	e.byte(byte(o.Type))
	e.uint(uint64(o.modTime))
	e.uint(uint64(o.Size))
	e.fixed(o.CRC64)
	e.b = append(e.b, o.tag[:]...)
	e.uint(uint64(uint32(o.parts)))
	encodeExtents(e, o.extents)
	encodeAttributes(e, o.Attrs)
}

func encodeObjectGone(e *encoder, bucket, key string) {
	e.byte(recordObjectGone)
	e.string(bucket)
	e.string(key)
}

func encodeUpload(e *encoder, bucket string, u *upload) {
	e.byte(recordUpload)
	e.string(bucket)
	e.string(u.ID)
	e.string(u.Key)
	e.uint(uint64(u.Initiated.Unix()))
	encodeAttributes(e, u.Attrs)
}

func encodePart(e *encoder, bucket, id string, p *part) {
	e.byte(recordPart)
	e.string(bucket)
	e.string(id)
	e.uint(uint64(p.Number))
	e.uint(uint64(p.modTime))
	e.uint(uint64(p.Size))
	e.fixed(p.CRC64)
	e.b = append(e.b, p.tag[:]...)
	encodeExtents(e, p.extents)
}

func encodeUploadGone(e *encoder, bucket, id string) {
	e.byte(recordUploadGone)
	e.string(bucket)
	e.string(id)
}

func encodeExtents(e *encoder, extents []extent) {
	e.uint(uint64(len(extents)))
	for _, x := range extents {
		packed := uint64(0)
		if x.file.packed {
			packed = 1
		}
		e.uint(x.file.id<<1 | packed)
		e.uint(uint64(x.off))
		e.uint(uint64(x.n))
	}
}

func encodeAttributes(e *encoder, a *Attributes) {
	var body encoder
	for _, v := range a.strings() {
		body.string(*v)
	}
	body.pairs(a.Meta)
	body.pairs(a.Tags)
	e.string(string(body.b))
}

// strings lists the simple attributes in the order of the format.
func (a *Attributes) strings() [10]*string {
	return [...]*string{
		&a.ContentType, &a.CacheControl, &a.ContentDisposition, &a.ContentEncoding, &a.ContentLanguage,
		&a.Expires, &a.StorageClass, &a.ACL, &a.Encryption, &a.Target,
	}
}

func decodeAttributes(b []byte) (*Attributes, error) {
	d := decoder{b: b}
	a := new(Attributes)
	for _, v := range a.strings() {
		*v = d.string()
	}
	a.Meta, a.Tags = d.pairs(), d.pairs()
	return a, d.err
}
