package fs

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	iofs "io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// world is a bucket and the tree over it, both in memory, both changeable while
// they are mounted. The content of an object follows from its identity, so that
// gigabytes cost nothing and every byte of another version is wrong.
type world struct {
	mu struct {
		sync.Mutex
		dirs    map[string]map[string]manifest.Entry
		sorted  map[string][]manifest.Entry // rebuilt when nil
		targets map[string]string
		// fail, if set, may turn an operation on the tree into an error.
		fail func(ctx context.Context, op, path string) error
		// read, if set, is called before a range is read and may make it fail.
		read func(ctx context.Context, r oss.RangeRequest) error
		// spoil, if set, may change what was read.
		spoil func(r oss.RangeRequest)
	}
	// ttl and negativeTTL say how long answers are valid; negative means for ever.
	ttl, negativeTTL time.Duration
	// sums makes the store say the checksum of every object.
	sums     bool
	versions atomic.Int64

	lookups, readdirs, forgets atomic.Int64
	// listed counts the entries of listings.
	listed             atomic.Int64
	ranges, rangeBytes atomic.Int64
}

// bornAt is when every object was made, so that a test that runs twice sees the
// same inode numbers.
var bornAt = time.Unix(1_700_000_000, 0).UTC()

func newWorld() *world {
	w := &world{ttl: -1, negativeTTL: -1}
	w.mu.dirs = map[string]map[string]manifest.Entry{"": {}}
	w.mu.sorted = map[string][]manifest.Entry{}
	w.mu.targets = map[string]string{}
	return w
}

// put makes path, with its directories, a new version of size bytes.
func (w *world) put(path string, size int64) oss.Object {
	o := oss.Object{
		Key: path, Size: size, ModTime: bornAt,
		ETag: fmt.Sprintf("%032X", w.versions.Add(1)),
	}
	w.enter(path, manifest.Entry{Kind: manifest.File, Object: o})
	return o
}

// mkdir makes path an empty directory.
func (w *world) mkdir(path string) {
	w.enter(path, manifest.Entry{Kind: manifest.Directory, Object: oss.Object{Key: path + "/"}})
}

// symlink makes path a link to target.
func (w *world) symlink(path, target string) {
	w.enter(path, manifest.Entry{Kind: manifest.Symlink, Object: oss.Object{
		Key: path, Size: int64(len(target)), ModTime: bornAt, ETag: fmt.Sprintf("%032X", w.versions.Add(1)),
	}})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.targets[path] = target
}

func (w *world) enter(path string, e manifest.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir, name := split(path)
	for d := dir; ; d, _ = split(d) {
		if w.mu.dirs[d] == nil {
			w.mu.dirs[d] = map[string]manifest.Entry{}
		}
		if d == "" {
			break
		}
		parent, base := split(d)
		if w.mu.dirs[parent] == nil {
			w.mu.dirs[parent] = map[string]manifest.Entry{}
		}
		if _, ok := w.mu.dirs[parent][base]; !ok {
			w.mu.dirs[parent][base] = manifest.Entry{Name: base, Kind: manifest.Directory, Object: oss.Object{Key: d + "/"}}
			delete(w.mu.sorted, parent)
		}
	}
	e.Name = name
	if e.Kind == manifest.Directory && w.mu.dirs[path] == nil {
		w.mu.dirs[path] = map[string]manifest.Entry{}
	}
	w.mu.dirs[dir][name] = e
	delete(w.mu.sorted, dir)
}

// remove takes path away.
func (w *world) remove(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir, name := split(path)
	delete(w.mu.dirs[dir], name)
	delete(w.mu.sorted, dir)
}

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func (w *world) failing(f func(ctx context.Context, op, path string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.fail = f
}

func (w *world) reading(f func(ctx context.Context, r oss.RangeRequest) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.read = f
}

func (w *world) spoiling(f func(r oss.RangeRequest)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.spoil = f
}

func validity(ttl time.Duration) manifest.Validity {
	if ttl < 0 {
		return manifest.Validity{}
	}
	return manifest.Validity(time.Now().Add(ttl))
}

// begin returns the entries of dir in order.
func (w *world) begin(ctx context.Context, op, dir, path string) ([]manifest.Entry, error) {
	w.mu.Lock()
	fail := w.mu.fail
	w.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, op, path); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, ok := w.mu.dirs[dir]
	if !ok {
		return nil, fmt.Errorf("directory %q: %w", dir, iofs.ErrNotExist)
	}
	sorted := w.mu.sorted[dir]
	if sorted == nil {
		sorted = make([]manifest.Entry, 0, len(entries))
		for name, e := range entries {
			e.Cursor = name
			sorted = append(sorted, e)
		}
		slices.SortFunc(sorted, func(a, b manifest.Entry) int { return strings.Compare(a.Name, b.Name) })
		w.mu.sorted[dir] = sorted
	}
	return sorted, nil
}

var _ manifest.Tree = (*world)(nil)

// Lookup implements [manifest.Tree].
func (w *world) Lookup(ctx context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	w.lookups.Add(1)
	sorted, err := w.begin(ctx, "lookup", dir, names.Join(dir, name))
	if err != nil {
		return manifest.Entry{}, validity(w.negativeTTL), err
	}
	i, ok := slices.BinarySearchFunc(sorted, name, func(e manifest.Entry, n string) int { return strings.Compare(e.Name, n) })
	if !ok {
		return manifest.Entry{}, validity(w.negativeTTL), fmt.Errorf("%q: %w", names.Join(dir, name), iofs.ErrNotExist)
	}
	return sorted[i], validity(w.ttl), nil
}

// ReadDir implements [manifest.Tree]. It gives at most 1000 at a time, as a page
// of the store does.
func (w *world) ReadDir(ctx context.Context, dir, after string, most int) ([]manifest.Entry, manifest.Validity, error) {
	w.readdirs.Add(1)
	sorted, err := w.begin(ctx, "readdir", dir, dir)
	if err != nil {
		return nil, validity(w.negativeTTL), err
	}
	i, ok := slices.BinarySearchFunc(sorted, after, func(e manifest.Entry, n string) int { return strings.Compare(e.Name, n) })
	if ok {
		i++
	}
	page := sorted[i:min(i+min(most, 1000), len(sorted))]
	w.listed.Add(int64(len(page)))
	return page, validity(w.ttl), nil
}

// ReadLink implements [manifest.Tree].
func (w *world) ReadLink(ctx context.Context, e manifest.Entry) (string, error) {
	if _, err := w.begin(ctx, "readlink", "", e.Object.Key); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	target, ok := w.mu.targets[e.Object.Key]
	if !ok {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, oss.ErrNotFound)
	}
	return target, nil
}

// Problems implements [manifest.Tree].
func (w *world) Problems() manifest.Problems {
	return manifest.Problems{Count: 1, Examples: []manifest.Problem{{Key: "a//b", Reason: "empty component"}}}
}

// Forget notes that the mount met a version that is gone.
func (w *world) Forget(string, string) { w.forgets.Add(1) }

var _ oss.RangeReader = (*world)(nil)

// ReadRange implements [oss.RangeReader].
func (w *world) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	w.mu.Lock()
	dir, name := split(r.Object.Key)
	now, ok := w.mu.dirs[dir][name]
	hook, spoil := w.mu.read, w.mu.spoil
	w.mu.Unlock()
	switch {
	case !ok:
		return oss.RangeResult{}, fmt.Errorf("get %q: %w", r.Object.Key, oss.ErrNotFound)
	case now.Object != r.Object:
		return oss.RangeResult{}, fmt.Errorf("get %q: %w", r.Object.Key, oss.ErrChanged)
	}
	if hook != nil {
		if err := hook(ctx, r); err != nil {
			return oss.RangeResult{}, err
		}
	}
	content(r.Object, r.Offset, r.Buffer)
	if spoil != nil {
		spoil(r)
	}
	w.ranges.Add(1)
	w.rangeBytes.Add(int64(len(r.Buffer)))
	if r.Arrived != nil {
		r.Arrived(len(r.Buffer))
	}
	if w.sums {
		return oss.RangeResult{CRC64: crc64.Checksum(all(r.Object), crc64.MakeTable(crc64.ECMA)), HasCRC64: true}, nil
	}
	return oss.RangeResult{}, nil
}

// content fills p with the bytes of o from off.
func content(o oss.Object, off int64, p []byte) {
	seed := xxhash.Sum64String(o.Key + "\x00" + o.ETag)
	var word [8]byte
	for i := 0; i < len(p); {
		at := off + int64(i)
		x := seed + uint64(at/8)*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x ^= x >> 27
		if at%8 == 0 && len(p)-i >= 8 {
			binary.LittleEndian.PutUint64(p[i:], x)
			i += 8
			continue
		}
		binary.LittleEndian.PutUint64(word[:], x)
		i += copy(p[i:], word[at%8:])
	}
}

// all returns the whole content of o.
func all(o oss.Object) []byte {
	p := make([]byte, o.Size)
	content(o, 0, p)
	return p
}
