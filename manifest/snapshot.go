package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/pailfs/pailfs/manifest/snapfile"
	"github.com/pailfs/pailfs/oss"
)

// Errors of manifests, for [errors.Is].
var (
	// ErrDamaged is that of a manifest that is not as it was written.
	ErrDamaged = snapfile.ErrDamaged
	// ErrVersion is that of a manifest of a version that this program does not read.
	ErrVersion = snapfile.ErrVersion
	// ErrForeign is that of a manifest that was made of another bucket or prefix.
	ErrForeign = errors.New("the manifest is another bucket's or prefix's")
)

// DamageError says what is damaged in which file, and where.
type DamageError = snapfile.DamageError

// LinkSource tells the targets of links that a manifest does not hold: of symlink objects, and
// of links of ossfs 1, which are the content of their objects.
type LinkSource interface {
	oss.RangeReader
	// SymlinkTarget returns the target key of the symlink object at key.
	SymlinkTarget(ctx context.Context, key string) (string, error)
}

// SnapshotConfig says how a manifest is shown. The zero value shows all of it.
type SnapshotConfig struct {
	// Prefix is the mounted part of the bucket: a key that ends with a slash and
	// begins with the manifest's root. Empty means the manifest's root.
	Prefix string
	// Bucket is the bucket that is mounted: a manifest that says that it was made of
	// another one is refused. Empty takes all.
	Bucket string
	// CacheBytes bounds the memory of decoded blocks. Zero means 16 MiB.
	CacheBytes int64
	// Links is asked for targets of links that the manifest does not hold. Without it
	// these cannot be read.
	Links LinkSource
}

// Info says what a manifest holds and where it comes from.
type Info struct {
	Header
	// Version is that of the format.
	Version int
	// Root begins every key.
	Root string
	// Objects is how many keys there are, markers of directories included;
	// Directories how many directories, the root included; Bytes what the objects
	// hold; Attrs how many objects have an [Attr].
	Objects, Directories, Bytes, Attrs int64
	// Problems is how many keys are not shown under their own name.
	Problems int64
	// FileBytes is the size of the manifest.
	FileBytes int64
}

// SnapshotStats says how a snapshot fares, for status.
type SnapshotStats struct {
	// CacheBytes is what decoded blocks take in memory; PartsRead how many parts of
	// the file were read and decoded so far.
	CacheBytes, PartsRead int64
	// Damaged is how often something damaged was met since the manifest was opened,
	// and FirstDamage the first of it, or nil.
	Damaged     int64
	FirstDamage *DamageError
}

// DirStats counts what is below a directory, at any depth.
type DirStats struct {
	// Files is how many objects there are, without markers of directories;
	// Directories how many directories, without the one that was asked for; Bytes what
	// the files hold.
	Files, Directories, Bytes int64
}

// Snapshot is the [Tree] over a manifest file. All it says is for ever. It reads
// without locks, and holds nothing for each name: blocks of 256 names are decoded
// when they are asked for and kept within a budget.
//
// A part of the file that turns out to be damaged gives an error that is
// [ErrDamaged] whenever it is needed. All other names go on.
type Snapshot struct {
	file *snapfile.File
	cfg  SnapshotConfig
	root string
}

var _ Tree = (*Snapshot)(nil)

// OpenSnapshot opens the manifest at path, which stays open until Close. The file
// must not be written to; it may be replaced or removed.
func OpenSnapshot(path string, cfg SnapshotConfig) (*Snapshot, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f, err := snapfile.Open(path, cfg.CacheBytes)
	if err != nil {
		return nil, err
	}
	return newSnapshot(f, cfg)
}

// OpenSnapshotAt opens the manifest of size bytes that r reads, which is called
// for each block that is not cached, from many goroutines at once. name is for
// messages.
func OpenSnapshotAt(name string, r io.ReaderAt, size int64, cfg SnapshotConfig) (*Snapshot, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f, err := snapfile.OpenAt(name, r, size, cfg.CacheBytes)
	if err != nil {
		return nil, err
	}
	return newSnapshot(f, cfg)
}

// check sets the zero fields of cfg, or says what is wrong.
func (cfg *SnapshotConfig) check() error {
	switch {
	case cfg.Prefix != "" && !strings.HasSuffix(cfg.Prefix, "/"):
		return fmt.Errorf("open manifest: prefix %q does not end with a slash", cfg.Prefix)
	case strings.HasPrefix(cfg.Prefix, ownPrefix):
		return fmt.Errorf("open manifest: prefix %q: what is under %q is pailfs's own", cfg.Prefix, ownPrefix)
	case cfg.CacheBytes < 0:
		return fmt.Errorf("open manifest: cache of %d bytes is negative", cfg.CacheBytes)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = 16 << 20
	}
	return nil
}

func newSnapshot(f *snapfile.File, cfg SnapshotConfig) (*Snapshot, error) {
	s := &Snapshot{file: f, cfg: cfg, root: f.Info().Root}
	if s.cfg.Prefix == "" {
		s.cfg.Prefix = s.root
	}
	if !strings.HasPrefix(s.cfg.Prefix, s.root) {
		err := fmt.Errorf("open manifest %s: %w: it holds the keys under %q, and those under %q are to be shown; build one of these, or mount %q", f.Name(), ErrForeign, s.root, cfg.Prefix, s.root)
		return nil, errors.Join(err, f.Close())
	}
	if from := f.Info().Properties[BucketProperty]; cfg.Bucket != "" && from != "" && from != cfg.Bucket {
		err := fmt.Errorf("open manifest %s: %w: it was made of bucket %q, and %q is mounted; build one of this", f.Name(), ErrForeign, from, cfg.Bucket)
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// Close lets the file go. Calls that need it afterwards fail with [fs.ErrClosed].
func (s *Snapshot) Close() error { return s.file.Close() }

// Info says what the manifest holds.
func (s *Snapshot) Info() Info {
	i := s.file.Info()
	return Info{
		Header: Header{
			Generation: i.Generation, Began: i.Began, Ended: i.Ended,
			BuiltBy: i.BuiltBy, Source: i.Source, Properties: i.Properties,
		},
		Version: snapfile.Version, Root: i.Root,
		Objects: int64(i.Objects), Directories: int64(i.Directories), Bytes: int64(i.Bytes), Attrs: int64(i.Attrs),
		Problems: int64(i.Problems), FileBytes: s.file.Size(),
	}
}

// Stats says how the snapshot fares.
func (s *Snapshot) Stats() SnapshotStats {
	var st SnapshotStats
	st.CacheBytes, st.PartsRead = s.file.Held()
	st.Damaged, st.FirstDamage = s.file.Damage()
	return st
}

// Problems implements [Tree]. The count is complete from the start; in a
// manifest of more than what is mounted the examples may be fewer.
func (s *Snapshot) Problems() Problems {
	p := Problems{Count: s.Info().Problems}
	if s.cfg.Prefix != s.root {
		p.Count = s.problemsBelow()
	}
	quoted := strings.TrimSuffix(strconv.Quote(s.cfg.Prefix), `"`)
	for _, e := range s.file.Info().Examples {
		if strings.HasPrefix(e.Key, s.cfg.Prefix) || strings.HasPrefix(e.Key, quoted) {
			p.Examples = append(p.Examples, Problem(e))
		}
	}
	return p
}

// problemsBelow counts the problems of what is mounted, where that is not all.
func (s *Snapshot) problemsBelow() int64 {
	t, _, err := s.below(s.cfg.Prefix)
	if err != nil {
		return 0 // every other call says so
	}
	count := int64(t.Problems)
	// An object that has the key of a directory with an escaped name is counted with
	// that, which is above what is mounted.
	if row, ok, err := s.row(s.cfg.Prefix, ""); err == nil && ok && !row.Marker() && !plain(lastComponent(s.cfg.Prefix)) {
		count++
	}
	// What is beside a hidden directory is beside none.
	_, isDir, err := s.row(s.cfg.Prefix, ownPrefix)
	if err == nil && isDir {
		if _, isObject, err := s.row(s.cfg.Prefix, strings.TrimSuffix(ownPrefix, "/")); err == nil && isObject {
			count--
		}
	}
	return count
}

// hidden reports whether the directory item under prefix is pailfs's own.
func (s *Snapshot) hidden(prefix string, item []byte) bool {
	return string(item) == ownPrefix && (prefix == "" || prefix == s.cfg.Prefix)
}

// below counts what is in the directory prefix and under it, without what is
// hidden.
func (s *Snapshot) below(prefix string) (snapfile.Totals, int64, error) {
	t, directories, err := s.file.Below(prefix[len(s.root):])
	if err != nil || prefix != s.cfg.Prefix {
		return t, int64(directories), err
	}
	own, hidden, err := s.file.Below(prefix[len(s.root):] + ownPrefix)
	return t.Sub(own), int64(directories) - int64(hidden), err
}

// directory returns the directory prefix, a full key.
func (s *Snapshot) directory(prefix string) (snapfile.Dir, bool, error) {
	if !strings.HasPrefix(prefix, s.root) {
		return snapfile.Dir{}, false, nil
	}
	return s.file.Directory(prefix[len(s.root):])
}

// Lookup implements [Tree].
func (s *Snapshot) Lookup(_ context.Context, dir, name string) (Entry, Validity, error) {
	component, beside, named := componentOf(name)
	prefix, shown := prefixOf(s.cfg.Prefix, dir)
	if !named || !shown || len(prefix)+len(component) > maxKey {
		return Entry{}, Validity{}, fs.ErrNotExist
	}
	d, ok, err := s.directory(prefix)
	if err != nil {
		return Entry{}, Validity{}, err
	}
	if !ok {
		return Entry{}, Validity{}, fs.ErrNotExist
	}
	isDir := false
	if d.Inside.Subdirectories > 0 && len(prefix)+len(component) < maxKey && !s.hidden(prefix, []byte(component+"/")) {
		r := s.file.Reader()
		r.Whole = true
		if _, isDir, err = r.Search(&d, d.First, component+"/"); err != nil {
			return Entry{}, Validity{}, err
		}
	}
	if isDir && !beside {
		e, err := s.directoryEntry(name, prefix+component+"/")
		return e, Validity{}, err
	}
	if isDir != beside {
		return Entry{}, Validity{}, fs.ErrNotExist
	}
	var row snapfile.Row
	isObject, err := s.file.Find(&d, component, &row)
	if err != nil {
		return Entry{}, Validity{}, err
	}
	if !isObject || row.Marker() {
		return Entry{}, Validity{}, fs.ErrNotExist
	}
	return objectEntryOf(name, prefix, &row), Validity{}, nil
}

// directoryEntry returns the entry of the directory of the keys under prefix.
func (s *Snapshot) directoryEntry(name, prefix string) (Entry, error) {
	e := Entry{Name: name, Kind: Directory, Object: oss.Object{Key: prefix}}
	if s.file.Info().Attrs == 0 {
		return e, nil
	}
	marker, ok, err := s.row(e.Object.Key, "")
	if ok && marker.Marker() {
		e.Attr = marker.Attr
	}
	return e, err
}

// row returns the row of an item of the directory prefix, a full key.
func (s *Snapshot) row(prefix, item string) (row snapfile.Row, ok bool, err error) {
	d, ok, err := s.directory(prefix)
	if err != nil || !ok {
		return row, false, err
	}
	ok, err = s.file.Find(&d, item, &row)
	return row, ok, err
}

// objectEntryOf returns the entry of an object. Key and ETag share one allocation.
func objectEntryOf(name, prefix string, row *snapfile.Row) Entry {
	var space [256]byte
	b := append(append(space[:0], prefix...), row.Item...)
	n := len(b)
	text := string(row.ETag.Append(b))
	e := Entry{
		Name: name, Attr: row.Attr,
		Object: oss.Object{Key: text[:n], ETag: text[n:], Size: row.Size, ModTime: row.ModTime},
	}
	if row.Symlink || e.LinkFile() {
		e.Kind = Symlink
	}
	return e
}

// ReadLink implements [Tree].
func (s *Snapshot) ReadLink(ctx context.Context, e Entry) (string, error) {
	if e.Kind != Symlink {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, fs.ErrInvalid)
	}
	if e.Attr == nil {
		r, err := s.Get(ctx, e.Object.Key)
		switch {
		case err == nil && r.Object() == e.Object:
			e.Attr = r.Attr
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("read link %q: %w", e.Object.Key, err)
		}
	}
	target, err := s.target(ctx, &e)
	if err != nil {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, err)
	}
	if e.LinkFile() {
		return target, nil
	}
	path, err := linker{s.cfg.Prefix, s}.linkPath(ctx, e.Object.Key, target)
	if err != nil {
		return "", fmt.Errorf("read link %q to %q: %w", e.Object.Key, target, err)
	}
	return path, nil
}

// target returns what a link says: the key that a symlink object names, or the path that is
// the content of a link of ossfs 1.
func (s *Snapshot) target(ctx context.Context, e *Entry) (string, error) {
	switch {
	case e.Attr != nil && e.Attr.Known&AttrTarget != 0:
		return e.Attr.Target, nil
	case s.cfg.Links == nil:
		return "", fmt.Errorf("manifest %s does not hold its target", s.file.Name())
	case e.LinkFile():
		target := make([]byte, e.Object.Size)
		_, err := s.cfg.Links.ReadRange(ctx, oss.RangeRequest{Object: e.Object, Buffer: target})
		return string(target), err
	}
	return s.cfg.Links.SymlinkTarget(ctx, e.Object.Key)
}

// Get returns the record of key, or [fs.ErrNotExist].
func (s *Snapshot) Get(_ context.Context, key string) (Record, error) {
	slash := strings.LastIndexByte(key, '/') + 1
	row, ok, err := s.row(key[:slash], key[slash:])
	if err != nil {
		return Record{}, err
	}
	if !ok {
		return Record{}, fs.ErrNotExist
	}
	return recordOfRow(key, &row), nil
}

// DirStats counts what is below the directory dir, from sums that the manifest
// holds. A directory that does not exist is [fs.ErrNotExist].
func (s *Snapshot) DirStats(_ context.Context, dir string) (DirStats, error) {
	prefix, shown := prefixOf(s.cfg.Prefix, dir)
	if !shown {
		return DirStats{}, fs.ErrNotExist
	}
	return s.KeyStats(prefix)
}

// KeyStats counts what is below the directory of the keys that begin with prefix,
// which ends with a slash or is empty.
func (s *Snapshot) KeyStats(prefix string) (DirStats, error) {
	_, ok, err := s.directory(prefix)
	if err != nil {
		return DirStats{}, err
	}
	if !ok {
		return DirStats{}, fs.ErrNotExist
	}
	t, directories, err := s.below(prefix)
	if err != nil {
		return DirStats{}, err
	}
	return DirStats{Files: int64(t.Files), Directories: directories - 1, Bytes: int64(min(t.Bytes, math.MaxInt64))}, nil
}

// Verify reads and checks the whole file. progress, if not nil, is told now and
// then how many names were read, of how many.
func (s *Snapshot) Verify(ctx context.Context, progress func(done, all int64)) error {
	all := int64(s.file.Info().Rows)
	return s.file.Check(func(rows uint64) error {
		if progress != nil {
			progress(int64(rows), all)
		}
		return ctx.Err()
	})
}
