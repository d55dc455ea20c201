package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Keys asks about every key of a list, with a HEAD each: for a manifest of a chosen
// part of a bucket, or where listing is not allowed.
type Keys struct {
	// Name is what the list is called, such as its path.
	Name string
	// Lines holds a key a line. It may begin with oss://BUCKET/.
	Lines io.Reader
	// Null says that keys end with a NUL, not with a newline.
	Null bool
	// Bucket is the bucket's name.
	Bucket string
	// AllowMissing leaves out keys that do not exist, which are an error else.
	AllowMissing bool
}

var _ Source = Keys{}

func (k Keys) describe() string               { return "keys " + k.Name }
func (Keys) period() (began, ended time.Time) { return time.Time{}, time.Time{} }

func (Keys) base(context.Context, *Build) error { return nil }
func (Keys) properties() map[string]string      { return nil }

// keysPerBatch is how many keys are logged at once.
const keysPerBatch = 256

// read asks about the keys that no batch covers. A batch is known again by the
// number of its first line and a checksum of its lines, so that a list that was
// changed meanwhile is asked about anew where it differs.
func (k Keys) read(ctx context.Context, b *Build, done []cover) error {
	type place struct{ from, sum uint64 }
	finished := make(map[place]bool, len(done))
	for _, c := range done {
		finished[place{c.from, c.sum}] = true
	}
	// What was in the list and is not any more must not be in the manifest: a batch
	// that does not come again ends the build.
	var lost missingKeys
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, b.cfg.Parallel/8))
	lines := lineReader{in: bufio.NewReaderSize(k.Lines, 256<<10), end: '\n', about: k}
	if k.Null {
		lines.end = 0
	}
	for from := uint64(0); ; {
		keys, sum, err := lines.batch(b.cfg.Prefix)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		if len(keys) == 0 {
			break
		}
		at := place{from, sum}
		from += uint64(len(keys))
		b.ofUnits.Store(int64(from))
		if finished[at] {
			delete(finished, at)
			b.units.Add(int64(len(keys)))
			continue
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			return k.ask(ctx, b, keys, cover{from: at.from, to: at.from + uint64(len(keys)), sum: sum}, &lost)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(finished) > 0 {
		return fmt.Errorf("the list %s is not the one that this build began with: give --restart to begin anew", k.Name)
	}
	return lost.err(b, k.AllowMissing)
}

// ask asks about the keys of one batch.
func (k Keys) ask(ctx context.Context, b *Build, keys []string, covers cover, lost *missingKeys) error {
	records := make([]manifest.Record, len(keys))
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, key := range keys {
		group.Go(func() (err error) {
			if b.own(key) {
				return nil
			}
			records[i], err = b.lookUp(asking, key)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	found, whole := records[:0], true
	for i := range records {
		switch {
		case records[i].Key != "":
			found = append(found, records[i])
		case !b.own(keys[i]):
			lost.add(keys[i])
			whole = false
		}
	}
	b.units.Add(int64(len(keys)))
	if !whole && !k.AllowMissing {
		return nil // asked again next time: it may be there by then
	}
	return b.put(&batch{covers: covers, records: found})
}

// lookUp returns what key holds, the zero record if nothing.
func (b *Build) lookUp(ctx context.Context, key string) (manifest.Record, error) {
	info, err := b.cfg.Bucket.Head(ctx, key)
	if err == nil && !info.Symlink {
		return fromHead(&info, b.cfg.Attrs), nil
	}
	if err != nil && !errors.Is(err, oss.ErrNotFound) {
		return manifest.Record{}, err
	}
	// A HEAD tells of what a symlink leads to, or that it leads nowhere; a listing
	// tells of the link.
	r := manifest.Record{Key: key}
	gone, err := b.askAgain(ctx, &r)
	if err != nil || gone {
		return manifest.Record{}, err
	}
	return r, nil
}

// missingKeys counts keys that do not exist.
type missingKeys struct {
	mu struct {
		sync.Mutex
		count int64
		some  []string
	}
}

func (m *missingKeys) add(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.count++; len(m.mu.some) < 3 {
		m.mu.some = append(m.mu.some, fmt.Sprintf("%q", key))
	}
}

// err notes what is missing, and says so unless it is allowed.
func (m *missingKeys) err(b *Build, allowed bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.missing.Add(m.mu.count)
	if allowed || m.mu.count == 0 {
		return nil
	}
	return fmt.Errorf("%d of the listed keys do not exist, such as %s: correct the list, or give --allow-missing to leave them out",
		m.mu.count, strings.Join(m.mu.some, ", "))
}

// lineReader reads the list of keys.
type lineReader struct {
	in    *bufio.Reader
	end   byte
	about Keys
	line  int
}

// batch returns the next keys and a checksum of them, none at the end.
func (l *lineReader) batch(prefix string) (keys []string, sum uint64, err error) {
	digest := xxhash.New()
	for len(keys) < keysPerBatch {
		text, err := l.in.ReadSlice(l.end)
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, 0, fmt.Errorf("line %d of %s is longer than any key", l.line+1, l.about.Name)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read %s: %w", l.about.Name, err)
		}
		if err != nil && len(text) == 0 {
			break
		}
		l.line++
		text = bytes.TrimSuffix(text, []byte{l.end})
		if l.end == '\n' {
			text = bytes.TrimSuffix(text, []byte{'\r'})
		}
		if len(text) == 0 {
			continue
		}
		key, err := l.key(string(text), prefix)
		if err != nil {
			return nil, 0, fmt.Errorf("line %d of %s: %w", l.line, l.about.Name, err)
		}
		keys = append(keys, key)
		_, _ = digest.WriteString(key) // never fails
		_, _ = digest.Write([]byte{0})
	}
	return keys, digest.Sum64(), nil
}

// key returns the key that a line means.
func (l *lineReader) key(line, prefix string) (string, error) {
	key := line
	if rest, is := strings.CutPrefix(line, "oss://"); is {
		bucket, of, _ := strings.Cut(rest, "/")
		if bucket != l.about.Bucket {
			return "", fmt.Errorf("%q is in another bucket than %q", line, l.about.Bucket)
		}
		key = of
	}
	switch {
	case key == "" || len(key) > maxKey:
		return "", fmt.Errorf("%q has %d bytes: keys have 1 to %d", line, len(key), maxKey)
	case key[0] == '/' || key[0] == '\\':
		return "", fmt.Errorf("%q begins with a slash: keys have none in front", line)
	case !strings.HasPrefix(key, prefix):
		return "", fmt.Errorf("%q is not below %q: write whole keys, or build a prefix above", line, prefix)
	}
	return key, nil
}
