package oss

import (
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what the protocol offers against damage; it is no defence
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxPut is the largest object of one request, by OSS's limits.
	maxPut = 5 << 30
	// maxMD5 is the largest body that is read a second time so that the server can
	// refuse a damaged one before it becomes visible. Larger ones are compared
	// after the fact; callers who mind send them in parts.
	maxMD5 = 16 << 20
)

// Put implements [Writer].
func (v *view) Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error) {
	if err := checkKey(opPut, key); err != nil {
		return Info{}, err
	}
	size := body.Size()
	if size < 0 || size > maxPut {
		return Info{}, invalid(opPut, key, fmt.Sprintf("the content has %d bytes, more than %d", size, maxPut))
	}
	header, err := o.header(opPut, key)
	if err != nil {
		return Info{}, err
	}
	p := &putting{body: body, header: header, options: o, retrying: v.retrying(opPut, key, size)}
	return p.run(ctx)
}

// putting is one Put.
type putting struct {
	*retrying
	body    Body
	header  map[string]string
	options PutOptions
	// etag and crc are what the stored object must have, if known before it is
	// sent; hasETag is false for bodies too large to be read twice.
	etag   string
	crc    uint64
	hasCRC bool
	// damaged is the ETag of what an earlier request of this call stored, which is not
	// what was sent; "" if none did.
	damaged string
	// overwrites says that the next request, and it alone, may replace an object though
	// the options forbid it: that is the damaged one.
	overwrites bool
}

func (p *putting) run(ctx context.Context) (Info, error) {
	if err := p.sum(); err != nil {
		return Info{}, p.view.client.failed(opPut, p.key, err, nil, nil)
	}
	for {
		overwrote := p.overwrites
		p.forbid()
		resp, f := p.view.exchange(ctx, p.retrying, &request{op: opPut, method: http.MethodPut, key: p.key, header: p.header, body: p.body})
		switch {
		case f == nil:
			p.crc, p.hasCRC = resp.sentCRC, true
			if f = p.verify(resp.header); f == nil {
				return p.identity(ctx, resp.header)
			}
			switch err := p.view.readBack(ctx, f, resp.header, p.body.Size(), p.crc); {
			case err == nil:
				info, err := p.identity(ctx, resp.header)
				info.CRC64, info.HasCRC64 = p.crc, err == nil
				return info, err
			case !errors.Is(err, ErrCorrupted):
				return Info{}, err
			}
			p.damaged = normalETag(resp.header.Get("ETag"))
		case f.is(ErrExists) && p.damaged != "" && !overwrote:
			again, err := p.overwriteDamaged(ctx, f)
			if err != nil {
				return Info{}, err
			}
			if again {
				continue
			}
			fallthrough
		case f.is(ErrExists) && p.ambiguous:
			// An earlier request of this call may have stored it.
			return p.ours(ctx, f)
		}
		if err := p.again(ctx, f); err != nil {
			return Info{}, err
		}
	}
}

// sum reads the body before it is sent, if it is small enough.
func (p *putting) sum() error {
	if p.body.Size() > maxMD5 {
		return nil
	}
	m, c := md5.New(), CRC64Writer(0)
	if err := copyBody(io.MultiWriter(m, &c), p.body); err != nil {
		return err
	}
	digest := m.Sum(nil)
	p.header["Content-MD5"] = base64.StdEncoding.EncodeToString(digest)
	p.etag = strings.ToUpper(hex.EncodeToString(digest))
	p.crc, p.hasCRC = uint64(c), true
	return nil
}

// verify compares what was sent with what the server says it stored.
func (p *putting) verify(h http.Header) *failure {
	stored, ok := parseCRC64(h)
	if !ok || stored == p.crc {
		return nil
	}
	return p.corrupt(p.crc, stored)
}

// corrupt is the failure of content that arrived damaged. It is worth sending a
// few times.
func (r *retrying) corrupt(sent, stored uint64) *failure {
	r.corrupted++
	return &failure{
		op: r.op, key: r.key, kind: ErrCorrupted, outcome: outcomeInvalid,
		transient: r.corrupted < maxCorrupted,
		cause:     fmt.Errorf("sent %016x, the server stored %016x", sent, stored),
	}
}

// ours decides whether the object that forbids overwriting is the one that an
// earlier request of this call stored.
func (p *putting) ours(ctx context.Context, exists *failure) (Info, error) {
	info, err := p.view.head(ctx, p.as(opHead))
	if err != nil {
		return Info{}, fmt.Errorf("%w (looking whether it is ours: %w)", exists, err)
	}
	if info.Size != p.body.Size() || !info.HasCRC64 || p.etag != "" && info.ETag != p.etag {
		return Info{}, exists
	}
	if !p.hasCRC {
		var sum CRC64Writer
		if err := copyBody(&sum, p.body); err != nil {
			return Info{}, p.view.client.failed(opPut, p.key, err, nil, nil)
		}
		p.crc = uint64(sum)
	}
	if info.CRC64 != p.crc {
		return Info{}, exists
	}
	return info, nil
}

// forbid makes the next request refuse to replace an object, if the options say so and it is
// not there to replace a damaged one.
func (p *putting) forbid() {
	if p.options.ForbidOverwrite {
		p.header[forbidOverwrite] = strconv.FormatBool(true)
	}
	if p.overwrites {
		delete(p.header, forbidOverwrite)
	}
	p.overwrites = false
}

// overwriteDamaged looks at what is in the way of this call. If it is what an earlier request has
// stored damaged, or nothing any more, the next request is worth sending. If it is something
// else, that is ours where an answer was lost, and otherwise somebody else's: exists is returned.
func (p *putting) overwriteDamaged(ctx context.Context, exists *failure) (again bool, err error) {
	info, err := p.view.head(ctx, p.as(opHead))
	switch {
	case errors.Is(err, ErrNotFound):
		p.damaged = "" // what comes there now is not ours
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%w (looking whether it is ours: %w)", exists, err)
	case info.ETag == p.damaged:
		p.overwrites = true
		return true, nil
	case p.ambiguous:
		return false, nil
	}
	return false, exists
}

// identity returns what was stored, by the answer with the header h.
func (p *putting) identity(ctx context.Context, h http.Header) (Info, error) {
	if info, ok := p.answered(h); ok {
		return info, nil
	}
	return p.view.stored(ctx, p.retrying, h, p.body.Size())
}

// as returns a call about the same key for another operation, within the same
// deadline.
func (r *retrying) as(op operation) *retrying {
	return &retrying{view: r.view, op: op, key: r.key, began: r.began, deadline: r.deadline}
}

// answered returns the identity of what was stored, if the answer tells enough. Of a
// request that took long the time may be that of its begin.
func (p *putting) answered(h http.Header) (Info, bool) {
	if !p.options.RoughTime || time.Since(p.began) > roughTime/2 {
		return Info{}, false
	}
	return fromAnswer(p.key, h, p.body.Size())
}

// fromAnswer returns what the answer to an upload tells of the object. Its time is the
// answer's.
func fromAnswer(key string, h http.Header, size int64) (Info, bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil || h.Get("ETag") == "" {
		return Info{}, false
	}
	info := Info{Object: NewObject(key, h.Get("ETag"), size, date)}
	info.CRC64, info.HasCRC64 = parseCRC64(h)
	return info, true
}

// stored returns the identity of an object that the server has just said it
// stored. The answers to Put and Complete do not tell the modification time, and
// an identity must agree with what listings say: hence a HEAD. If another version
// is there by then, ours has been and is gone; it is described by what is known.
func (v *view) stored(ctx context.Context, r *retrying, h http.Header, size int64) (Info, error) {
	etag := normalETag(h.Get("ETag"))
	info, err := v.head(ctx, r.as(opHead))
	switch {
	case err == nil && info.ETag == etag && info.Size == size:
		return info, nil
	case err == nil || errors.Is(err, ErrNotFound):
		info, ok := fromAnswer(r.key, h, size)
		if !ok {
			return Info{}, &failure{op: r.op, key: r.key, kind: ErrChanged, outcome: outcomeChanged, cause: errors.New("it was replaced as soon as it was stored")}
		}
		return info, nil
	default:
		return Info{}, fmt.Errorf("%s %q: stored, but asking for its identity failed: %w", r.op, r.key, err)
	}
}

// forbidOverwrite is the header of a request that must not replace an object.
const forbidOverwrite = "X-Oss-Forbid-Overwrite"

// header turns the options into the request's header. It is never nil.
func (o *PutOptions) header(op operation, key string) (map[string]string, error) {
	h := make(map[string]string, len(o.Meta)+3)
	if o.ContentType != "" {
		if !printable(o.ContentType) {
			return nil, invalid(op, key, "the content type is not printable")
		}
		h["Content-Type"] = o.ContentType
	}
	if o.ForbidOverwrite {
		h[forbidOverwrite] = strconv.FormatBool(true)
	}
	for name, value := range o.Meta {
		if !metaName(name) || !printable(value) {
			return nil, invalid(op, key, fmt.Sprintf("metadata %q: names are letters, digits and dashes; values are printable", name))
		}
		h[metaPrefix+strings.ToLower(name)] = value
	}
	return h, nil
}

func metaName(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// printable says whether s survives as the value of a header: no control
// characters, no space at the ends.
func printable(s string) bool {
	return strings.TrimSpace(s) == s && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}
