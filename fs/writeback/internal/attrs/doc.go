// Package attrs says what mode, owner, time and extended attributes are as user metadata of
// an object (x-oss-meta-*), and reads them back.
//
// [Attrs] are what ossfs 1 keeps there as decimal numbers, [XAttrs] what s3fs and ossfs 1
// keep there as JSON, escaped as in a URL. Both lay themselves over the metadata that an
// object has: what they do not understand goes along.
//
// The package computes. It reads and writes nothing, holds no lock, and knows neither files
// nor records: fs/writeback decides when metadata is written, and by which request.
package attrs
