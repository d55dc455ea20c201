package build

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// columns says in which column of an inventory's rows a field is, -1 if nowhere.
type columns struct {
	count                                        int
	bucket, key, size, modified, etag, kind, crc int
	latest, deleted                              int
}

// parseSchema reads the fileSchema of manifest.json.
func parseSchema(schema string) (columns, error) {
	names := strings.Split(schema, ",")
	at := map[string]int{}
	for i, name := range names {
		at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	find := func(name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return -1
	}
	c := columns{
		count: len(names), bucket: find("bucket"), key: find("key"), size: find("size"), modified: find("lastmodifieddate"),
		etag: find("etag"), kind: find("objecttype"), crc: find("crc64"), latest: find("islatest"), deleted: find("isdeletemarker"),
	}
	if find("recordtype") >= 0 {
		return columns{}, errors.New("it is an incremental inventory, which tells of changes only: name the manifest.json of a full one")
	}
	for name, i := range map[string]int{"Key": c.key, "Size": c.size, "LastModifiedDate": c.modified, "ETag": c.etag} {
		if i < 0 {
			return columns{}, fmt.Errorf("its rows (%s) have no %s: add that field to the inventory's rule, or build from a listing", schema, name)
		}
	}
	return c, nil
}

const (
	// rowsPerBatch is how many rows are logged at once.
	rowsPerBatch = 4096
	// maxRow is more bytes than a row can have.
	maxRow = 64 << 10
	// wholeFile is the end of a stretch of rows that goes to the end of the file.
	wholeFile = math.MaxUint64
)

// readRows reads a gzip file of rows and passes those from skip on to the build.
func (v *Inventory) readRows(ctx context.Context, b *Build, unit string, in io.Reader, skip uint64) error {
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	r := rowReader{in: bufio.NewReaderSize(unzipped, maxRow), columns: v.columns}
	page := rowBatch{prefix: b.cfg.Prefix}
	row, from := uint64(0), skip
	flush := func(to uint64) error {
		records, err := b.describe(ctx, page.records())
		if err != nil {
			return err
		}
		if err := b.put(&batch{covers: cover{unit: unit, from: from, to: to}, records: records}); err != nil {
			return err
		}
		page.reset()
		from = to
		return ctx.Err()
	}
	for ; ; row++ {
		fields, err := r.next()
		if errors.Is(err, io.EOF) {
			return flush(wholeFile)
		}
		if err == nil && row >= skip {
			err = page.add(b, &v.columns, fields, v.list.SourceBucket)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", row+1, err)
		}
		if row >= skip && len(page.rows) == rowsPerBatch {
			if err := flush(row + 1); err != nil {
				return err
			}
		}
	}
}

// rowReader reads CSV as inventories have it: a row a line, every field quoted or
// none.
type rowReader struct {
	in      *bufio.Reader
	columns columns
	fields  [][]byte
}

// next returns the fields of the next row, which are valid until the next call.
func (r *rowReader) next() ([][]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("it is longer than %d bytes", maxRow)
		}
		return nil, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	r.fields = r.fields[:0]
	for more := true; more; {
		var field []byte
		if field, line, more, err = cutField(line); err != nil {
			return nil, err
		}
		r.fields = append(r.fields, field)
	}
	if len(r.fields) != r.columns.count {
		return nil, fmt.Errorf("it has %d fields, and fileSchema names %d", len(r.fields), r.columns.count)
	}
	return r.fields, nil
}

// cutField returns the first field of a line, what follows its comma, and whether
// there was one.
func cutField(line []byte) (field, rest []byte, more bool, err error) {
	if len(line) == 0 || line[0] != '"' {
		field, rest, more = bytes.Cut(line, []byte(","))
		return field, rest, more, nil
	}
	line = line[1:]
	for from := 0; ; {
		i := bytes.IndexByte(line[from:], '"')
		if i < 0 {
			return nil, nil, false, errors.New("a quote is not closed")
		}
		i += from
		switch {
		case i+1 == len(line):
			return line[:i], nil, false, nil
		case line[i+1] == ',':
			return line[:i], line[i+2:], true, nil
		case line[i+1] == '"': // a quote in the field is written twice
			copy(line[i+1:], line[i+2:])
			line = line[:len(line)-1]
			from = i + 1
		default:
			return nil, nil, false, errors.New("a quote is followed by neither a comma nor another quote")
		}
	}
}

// rowBatch gathers rows. The texts of all lie in one string, for there are millions.
type rowBatch struct {
	prefix string
	text   []byte
	rows   []rowEntry
}

// rowEntry is a row, with where its key and entity tag lie in the batch's text.
type rowEntry struct {
	record        manifest.Record
	key, etag, to int
}

func (p *rowBatch) reset() { p.text, p.rows = p.text[:0], p.rows[:0] }

// add takes a row, unless it tells of something that no manifest holds.
func (p *rowBatch) add(b *Build, c *columns, fields [][]byte, bucket string) error {
	if c.bucket >= 0 && string(fields[c.bucket]) != bucket {
		return fmt.Errorf("it tells of the bucket %q, not of %q", fields[c.bucket], bucket)
	}
	if c.latest >= 0 && isNo(fields[c.latest]) || c.deleted >= 0 && isYes(fields[c.deleted]) {
		return nil
	}
	e := rowEntry{key: len(p.text)}
	var err error
	if p.text, err = appendUnescaped(p.text, fields[c.key]); err != nil {
		return err
	}
	key := p.text[e.key:]
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("its key has %d bytes: keys have 1 to %d", len(key), maxKey)
	}
	if !bytes.HasPrefix(key, []byte(p.prefix)) || b.own(string(key)) {
		p.text = p.text[:e.key]
		return nil
	}
	e.etag = len(p.text)
	p.text = append(p.text, fields[c.etag]...)
	e.to = len(p.text)
	r := &e.record
	if r.Size, err = strconv.ParseInt(string(fields[c.size]), 10, 64); err != nil || r.Size < 0 {
		return fmt.Errorf("its size %q is no number of bytes", fields[c.size])
	}
	if r.ModTime, err = parseDate(fields[c.modified]); err != nil {
		return err
	}
	if e.to == e.etag {
		return fmt.Errorf("key %q has no ETag", key)
	}
	if c.kind >= 0 {
		r.Symlink = string(fields[c.kind]) == "Symlink"
	}
	if c.crc >= 0 && len(fields[c.crc]) > 0 {
		// A symlink has none; whatever else is no number is as good as none.
		if r.CRC64, err = strconv.ParseUint(string(fields[c.crc]), 10, 64); err == nil {
			r.HasCRC64 = true
		}
	}
	p.rows = append(p.rows, e)
	return nil
}

// records returns the rows as records.
func (p *rowBatch) records() []manifest.Record {
	text := string(p.text)
	records := make([]manifest.Record, len(p.rows))
	for i := range p.rows {
		e := &p.rows[i]
		r := &records[i]
		*r = e.record
		o := oss.NewObject(text[e.key:e.etag], text[e.etag:e.to], r.Size, r.ModTime)
		r.Key, r.ETag = o.Key, o.ETag
	}
	return records
}

// appendUnescaped appends the key that a URL-encoded field means.
func appendUnescaped(text, field []byte) ([]byte, error) {
	if !bytes.ContainsAny(field, "%+") {
		return append(text, field...), nil
	}
	whole := len(text)
	for i := 0; i < len(field); i++ {
		switch c := field[i]; c {
		case '+':
			text = append(text, ' ')
		case '%':
			var b [1]byte
			if i+2 >= len(field) {
				return text[:whole], fmt.Errorf("its key %q is not URL-encoded", field)
			}
			if _, err := hex.Decode(b[:], field[i+1:i+3]); err != nil {
				return text[:whole], fmt.Errorf("its key %q is not URL-encoded", field)
			}
			text = append(text, b[0])
			i += 2
		default:
			text = append(text, c)
		}
	}
	return text, nil
}

func isYes(field []byte) bool { return strings.EqualFold(string(field), "true") }
func isNo(field []byte) bool  { return strings.EqualFold(string(field), "false") }

// parseDate reads a date and time in UTC: 2026-11-20T06:44:41.000Z, also with
// other separators and without a fraction. Fractions are dropped: identities have
// whole seconds.
func parseDate(field []byte) (time.Time, error) {
	bad := func() (time.Time, error) {
		return time.Time{}, fmt.Errorf("its LastModifiedDate %q is no date such as 2026-11-20T06:44:41.000Z", field)
	}
	const length = len("2026-11-20T06:44:41")
	if len(field) < length {
		return bad()
	}
	var part [6]int
	for i, at := range [...]int{0, 5, 8, 11, 14, 17} {
		digits := 2
		if i == 0 {
			digits = 4
		}
		for _, c := range field[at : at+digits] {
			if c < '0' || c > '9' {
				return bad()
			}
			part[i] = 10*part[i] + int(c-'0')
		}
	}
	switch rest := field[length:]; {
	case len(rest) == 0, rest[0] == '.', rest[0] == 'Z', bytes.Equal(rest, []byte("+00:00")):
	default:
		return bad() // another zone
	}
	t := time.Date(part[0], time.Month(part[1]), part[2], part[3], part[4], part[5], 0, time.UTC)
	if t.Month() != time.Month(part[1]) || t.Day() != part[2] || t.Hour() != part[3] || t.Minute() != part[4] {
		return bad()
	}
	return t, nil
}
