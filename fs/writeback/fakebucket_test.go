package writeback

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/oss"
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// fakeStore is what a bucket holds.
type fakeStore struct {
	sync.Mutex
	objects map[string]fakeObject
	uploads map[string]*fakeUpload
	serial  int
	// faults is the share of requests that fail, half of them after the deed.
	faults float64
	// slow is how much longer requests take that write.
	slow time.Duration
	// deaf says that requests fail that write nothing.
	deaf bool
	// denied are keys that nobody may write, refused counts how often that was tried.
	denied  map[string]bool
	refused int
	// lateBegin and lateEnd make requests that begin or complete an upload fail at once, and
	// be carried out when the key is looked at next, after the answer; late are those.
	lateBegin, lateEnd bool
	late               []func()
	rand               *rand.Rand
	// seed, if set, gives each key its own luck, whoever comes first; luck has it.
	seed uint64
	luck map[string]*rand.Rand
	// lies says that every checksum is told wrong.
	lies bool
	// skew is how far the clock of answers is from the one of objects.
	skew time.Duration
	// seen is told of every object that appears, gone of every one that was removed by a client,
	// both under the lock.
	seen func(key string, content []byte)
	gone func(key string, content []byte)
	// writes counts what was written since the start, sent the bytes that were sent; got counts
	// those that were read, by key.
	writes int
	sent   int64
	got    map[string]int64
}

type fakeObject struct {
	oss.Info
	content []byte
}

type fakeUpload struct {
	key   string
	o     oss.PutOptions
	parts map[int][]byte
}

func newFakeStore(r *rand.Rand) *fakeStore {
	return &fakeStore{objects: make(map[string]fakeObject), uploads: make(map[string]*fakeUpload), denied: make(map[string]bool), got: make(map[string]int64), luck: make(map[string]*rand.Rand), rand: r}
}

// put stores content from outside.
func (f *fakeStore) put(key string, content string) {
	f.Lock()
	defer f.Unlock()
	f.store(key, []byte(content), oss.PutOptions{}, "")
}

func (f *fakeStore) store(key string, content []byte, o oss.PutOptions, suffix string) oss.Info {
	content = bytes.Clone(content)
	f.serial++
	etag := fmt.Sprintf("%X%s", md5.Sum(content), suffix)
	info := oss.Info{
		Object: oss.NewObject(key, etag, int64(len(content)), time.Now()), CRC64: crc64.Checksum(content, crcTable), HasCRC64: true,
		ContentType: o.ContentType, Meta: maps.Clone(o.Meta),
	}
	f.objects[key] = fakeObject{info, content}
	f.writes++
	if f.seen != nil {
		f.seen(key, content)
	}
	return info
}

// luckOf decides what becomes of requests for a key. The store is locked.
func (f *fakeStore) luckOf(key string) *rand.Rand {
	if f.seed == 0 {
		return f.rand
	}
	if f.luck[key] == nil {
		f.luck[key] = rand.New(rand.NewPCG(f.seed, crc64.Checksum([]byte(key), crcTable)))
	}
	return f.luck[key]
}

// fakeBucket is one client of a store.
type fakeBucket struct {
	*fakeStore
	mu struct {
		sync.Mutex
		// dead clients' requests come to nothing.
		dead bool
	}
}

func (b *fakeBucket) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.dead = true
}

// request waits as a network would, and says whether the deed is done and what the
// caller gets to know.
func (b *fakeBucket) request(ctx context.Context, key string, write bool) (deed bool, err error) {
	b.Lock()
	luck := b.luckOf(key)
	wait := time.Duration(1+luck.IntN(40)) * time.Millisecond
	if write {
		wait += b.slow
	}
	fault := write && luck.Float64() < b.faults
	deaf := !write && b.deaf
	after := luck.IntN(2) == 0
	denied := write && b.denied[key]
	b.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	b.mu.Lock()
	dead := b.mu.dead
	b.mu.Unlock()
	switch {
	case dead:
		return false, context.Canceled
	case ctx.Err() != nil:
		return after, ctx.Err()
	case deaf:
		return false, fmt.Errorf("get %q: %w", key, oss.ErrUnavailable)
	case denied:
		b.Lock()
		b.refused++
		b.Unlock()
		return false, fmt.Errorf("put %q: %w", key, oss.ErrAccessDenied)
	case fault:
		return after, fmt.Errorf("put %q: %w", key, oss.ErrUnavailable)
	}
	return true, nil
}

func (b *fakeBucket) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	if _, err := b.request(ctx, r.Object.Key, false); err != nil {
		return oss.RangeResult{}, err
	}
	b.Lock()
	defer b.Unlock()
	o, ok := b.objects[r.Object.Key]
	switch {
	case !ok:
		return oss.RangeResult{}, oss.ErrNotFound
	case o.ETag != r.Object.ETag:
		return oss.RangeResult{}, oss.ErrChanged
	}
	b.got[r.Object.Key] += int64(copy(r.Buffer, o.content[r.Offset:]))
	return oss.RangeResult{CRC64: b.told(o.Info).CRC64, HasCRC64: true}, nil
}

func (b *fakeBucket) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	if _, err := b.request(ctx, r.Prefix, false); err != nil {
		return oss.ListPage{}, err
	}
	b.Lock()
	defer b.Unlock()
	after := r.StartAfter
	if r.Token != "" {
		after = r.Token
	}
	var page oss.ListPage
	limit := cmp.Or(r.MaxKeys, 1000)
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if !strings.HasPrefix(key, r.Prefix) || key <= after {
			continue
		}
		if i := strings.Index(key[len(r.Prefix):], r.Delimiter); r.Delimiter != "" && i >= 0 {
			folded := key[:len(r.Prefix)+i+1]
			if folded <= after || slices.Contains(page.Prefixes, folded) || strings.HasPrefix(after, folded) {
				continue
			}
			page.Prefixes = append(page.Prefixes, folded)
			if len(page.Objects)+len(page.Prefixes) == limit {
				page.Next = folded + "\xff"
				return page, nil
			}
			continue
		}
		page.Objects = append(page.Objects, oss.ListedObject{Object: b.objects[key].Object})
		if len(page.Objects)+len(page.Prefixes) == limit {
			page.Next = key
			return page, nil
		}
	}
	return page, nil
}

func (b *fakeBucket) Head(ctx context.Context, key string) (oss.Info, error) {
	if _, err := b.request(ctx, key, false); err != nil {
		return oss.Info{}, err
	}
	b.Lock()
	defer b.Unlock()
	defer b.carryOut()
	o, ok := b.objects[key]
	if !ok {
		return oss.Info{}, oss.ErrNotFound
	}
	return b.told(o.Info), nil
}

// told is what the store says of an object.
func (f *fakeStore) told(info oss.Info) oss.Info {
	if f.lies {
		info.CRC64++
	}
	return info
}

// carryOut does what was late.
func (f *fakeStore) carryOut() {
	for _, do := range f.late {
		do()
	}
	f.late = nil
}

func (b *fakeBucket) SymlinkTarget(context.Context, string) (string, error) {
	return "", oss.ErrInvalid
}

func (b *fakeBucket) Put(ctx context.Context, key string, body oss.Body, o oss.PutOptions) (oss.Info, error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return oss.Info{}, err
	}
	deed, err := b.request(ctx, key, true)
	if !deed {
		return oss.Info{}, err
	}
	b.Lock()
	defer b.Unlock()
	b.sent += int64(len(content))
	if _, ok := b.objects[key]; ok && o.ForbidOverwrite {
		if err != nil {
			return oss.Info{}, err
		}
		return oss.Info{}, oss.ErrExists
	}
	info := b.store(key, content, o, "")
	if err != nil {
		return oss.Info{}, err
	}
	if o.RoughTime {
		info.ModTime = info.ModTime.Add(time.Duration(b.serial%3)*time.Second + b.skew)
	}
	return info, nil
}

func (b *fakeBucket) Copy(ctx context.Context, key string, src oss.Object, o oss.PutOptions) (oss.Info, error) {
	deed, err := b.request(ctx, key, true)
	if !deed {
		return oss.Info{}, err
	}
	b.Lock()
	defer b.Unlock()
	from, ok := b.objects[src.Key]
	if !ok || from.ETag != src.ETag {
		return oss.Info{}, oss.ErrChanged
	}
	if _, ok := b.objects[key]; ok && o.ForbidOverwrite {
		return oss.Info{}, oss.ErrExists
	}
	if o.ContentType == "" && len(o.Meta) == 0 {
		o.ContentType, o.Meta = from.ContentType, from.Meta
	}
	info := b.store(key, from.content, o, "")
	return info, err
}

func (b *fakeBucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		deed, err := b.request(ctx, key, true)
		if deed {
			b.Lock()
			was, there := b.objects[key]
			delete(b.objects, key)
			b.writes++
			if there && b.gone != nil {
				b.gone(key, was.content)
			}
			b.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *fakeBucket) CreateUpload(ctx context.Context, key string, o oss.PutOptions) (oss.MultipartUpload, error) {
	deed, err := b.request(ctx, key, true)
	u := oss.MultipartUpload{Key: key}
	b.Lock()
	defer b.Unlock()
	do := func() {
		b.serial++
		u.ID = fmt.Sprintf("upload-%d", b.serial)
		b.uploads[u.ID] = &fakeUpload{key: key, o: o, parts: make(map[int][]byte)}
	}
	switch {
	case deed && b.lateBegin:
		b.late = append(b.late, do)
		return oss.MultipartUpload{}, oss.ErrUnavailable
	case deed:
		do()
	}
	if err != nil {
		return oss.MultipartUpload{}, err
	}
	return u, nil
}

func (b *fakeBucket) UploadPart(ctx context.Context, u oss.MultipartUpload, number int, body oss.Body) (oss.Part, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return oss.Part{}, err
	}
	size := body.Size()
	content, err := io.ReadAll(body)
	if err != nil {
		return oss.Part{}, err
	}
	if int64(len(content)) < size {
		// As the client does that can read no more.
		return oss.Part{}, fmt.Errorf("%w: read content to send: %w", oss.ErrInvalid, io.ErrUnexpectedEOF)
	}
	return b.part(ctx, u, number, func() ([]byte, error) {
		b.sent += int64(len(content))
		return content, nil
	})
}

func (b *fakeBucket) part(ctx context.Context, u oss.MultipartUpload, number int, read func() ([]byte, error)) (oss.Part, error) {
	deed, err := b.request(ctx, u.Key, true)
	if !deed {
		return oss.Part{}, err
	}
	b.Lock()
	defer b.Unlock()
	up := b.uploads[u.ID]
	if up == nil {
		return oss.Part{}, oss.ErrNotFound
	}
	content, failed := read()
	if failed != nil {
		return oss.Part{}, failed
	}
	up.parts[number] = content
	return partOf(number, content), err
}

func partOf(number int, content []byte) oss.Part {
	return oss.Part{Number: number, ETag: fmt.Sprintf("%X", md5.Sum(content)), Size: int64(len(content)), CRC64: crc64.Checksum(content, crcTable)}
}

func (b *fakeBucket) CopyPart(ctx context.Context, u oss.MultipartUpload, number int, src oss.Object, offset, size int64) (oss.Part, error) {
	p, err := b.part(ctx, u, number, func() ([]byte, error) {
		from, ok := b.objects[src.Key]
		if !ok || from.ETag != src.ETag {
			return nil, oss.ErrChanged
		}
		return bytes.Clone(from.content[offset : offset+size]), nil
	})
	p.CRC64 = 0
	return p, err
}

func (b *fakeBucket) ListParts(ctx context.Context, u oss.MultipartUpload) ([]oss.Part, error) {
	if _, err := b.request(ctx, u.Key, false); err != nil {
		return nil, err
	}
	b.Lock()
	defer b.Unlock()
	up := b.uploads[u.ID]
	if up == nil {
		return nil, oss.ErrNotFound
	}
	var parts []oss.Part
	for _, n := range slices.Sorted(maps.Keys(up.parts)) {
		parts = append(parts, partOf(n, up.parts[n]))
	}
	return parts, nil
}

func (b *fakeBucket) CompleteUpload(ctx context.Context, u oss.MultipartUpload, parts []oss.Part, o oss.PutOptions) (oss.Info, error) {
	deed, err := b.request(ctx, u.Key, true)
	if !deed {
		return oss.Info{}, err
	}
	b.Lock()
	defer b.Unlock()
	if b.lateEnd {
		b.late = append(b.late, func() { _, _ = b.complete(u, parts, o) }) // nobody hears of it
		return oss.Info{}, oss.ErrUnavailable
	}
	info, failed := b.complete(u, parts, o)
	if failed != nil {
		return oss.Info{}, failed
	}
	return info, err
}

// complete makes the object of an upload. The store is locked.
func (b *fakeBucket) complete(u oss.MultipartUpload, parts []oss.Part, o oss.PutOptions) (oss.Info, error) {
	up := b.uploads[u.ID]
	if up == nil {
		return oss.Info{}, oss.ErrNotFound
	}
	if _, ok := b.objects[u.Key]; ok && o.ForbidOverwrite {
		return oss.Info{}, oss.ErrExists
	}
	var content []byte
	for _, p := range parts {
		have, ok := up.parts[p.Number]
		if !ok || partOf(p.Number, have).ETag != p.ETag {
			return oss.Info{}, oss.ErrInvalid
		}
		content = append(content, have...)
	}
	delete(b.uploads, u.ID)
	return b.store(u.Key, content, up.o, fmt.Sprintf("-%d", len(parts))), nil
}

func (b *fakeBucket) AbortUpload(ctx context.Context, u oss.MultipartUpload) error {
	deed, err := b.request(ctx, u.Key, false)
	if deed {
		b.Lock()
		delete(b.uploads, u.ID)
		b.Unlock()
	}
	return err
}

func (b *fakeBucket) ListUploads(ctx context.Context, prefix string) ([]oss.MultipartUpload, error) {
	if _, err := b.request(ctx, prefix, false); err != nil {
		return nil, err
	}
	b.Lock()
	defer b.Unlock()
	var all []oss.MultipartUpload
	for id, u := range b.uploads {
		if strings.HasPrefix(u.key, prefix) {
			all = append(all, oss.MultipartUpload{Key: u.key, ID: id})
		}
	}
	return all, nil
}
