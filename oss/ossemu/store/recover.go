package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recover reads the index from disk, puts the files in order, and leaves a
// journal open for further records.
func (s *Store) recover() error {
	files, err := s.index.list()
	if err != nil {
		return err
	}
	r := &replay{store: s, files: make(map[uint64]*file)}
	if err := r.all(files); err != nil {
		return err
	}
	if err := s.data.adopt(r.files); err != nil {
		return err
	}
	doomed, err := s.thinPacks()
	if err != nil {
		return err
	}
	if len(doomed) == 0 && s.mu.journal.size < s.snapshotThreshold() {
		return nil
	}
	moved, err := s.repack(doomed)
	if err != nil {
		return err
	}
	if err := s.snapshotNow(); err != nil {
		return err
	}
	s.data.release(moved)
	return nil
}

// indexDir is the directory of the snapshots and journals, which say what there is.
type indexDir string

// indexFiles are the numbers of the snapshots and journals on disk.
type indexFiles struct {
	snapshots, journals []int
}

func (d indexDir) list() (indexFiles, error) {
	var found indexFiles
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		kind, number, _ := strings.Cut(e.Name(), "-")
		n, err := strconv.Atoi(number)
		switch {
		case strings.HasSuffix(e.Name(), ".tmp"):
			if err := os.Remove(filepath.Join(string(d), e.Name())); err != nil {
				return found, err
			}
		case err != nil || n < 1:
			return found, fmt.Errorf("%w: unknown file %q", errCorrupt, e.Name())
		case kind == "snapshot":
			found.snapshots = append(found.snapshots, n)
		case kind == "journal":
			found.journals = append(found.journals, n)
		default:
			return found, fmt.Errorf("%w: unknown file %q", errCorrupt, e.Name())
		}
	}
	slices.Sort(found.snapshots)
	slices.Sort(found.journals)
	return found, nil
}

func (d indexDir) snapshot(n int) string {
	return filepath.Join(string(d), fmt.Sprintf("snapshot-%08d", n))
}

func (d indexDir) journal(n int) string {
	return filepath.Join(string(d), fmt.Sprintf("journal-%08d", n))
}

// replay rebuilds the index from records.
type replay struct {
	store *Store
	files map[uint64]*file
	// records counts what has been read from one file, done is set by the last
	// record of a snapshot.
	records uint64
	done    bool
}

// all reads the newest snapshot and every journal from its number on. Older
// files are what a death before their removal left.
func (r *replay) all(found indexFiles) error {
	s := r.store
	first := 1
	if n := len(found.snapshots); n > 0 {
		first = found.snapshots[n-1]
		size, err := r.file(s.index.snapshot(first), true)
		if err != nil {
			return err
		}
		s.mu.snapshotSize = size
	}
	s.mu.generation = first
	next := first
	for _, n := range found.journals {
		if n < first {
			continue
		}
		if n != next {
			return fmt.Errorf("%w: journal %d is missing", errCorrupt, next)
		}
		next++
	}
	for n := first; n < next; n++ {
		size, err := r.file(s.index.journal(n), n < next-1)
		if err != nil {
			return err
		}
		s.mu.generation = n
		if n == next-1 {
			if err := s.continueJournal(n, size); err != nil {
				return err
			}
		}
	}
	if s.mu.journal == nil {
		if first > 1 {
			return fmt.Errorf("%w: journal %d is missing", errCorrupt, first)
		}
		j, err := createJournal(s.index.journal(first))
		if err != nil {
			return err
		}
		s.mu.journal = j
	}
	return s.index.removeBefore(first, found)
}

// file reads one file and returns how much of it is whole records. A file that
// must be whole and is not is an error; the end of the last journal may be torn.
func (r *replay) file(path string, whole bool) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r.records, r.done = 0, false
	size, err := readRecords(f, func(payload []byte) error {
		err := r.record(payload)
		r.records++
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: record %d: %w", filepath.Base(path), r.records, err)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if whole && size != info.Size() {
		return 0, fmt.Errorf("%w: %s ends after %d of %d bytes", errCorrupt, filepath.Base(path), size, info.Size())
	}
	if strings.HasPrefix(filepath.Base(path), "snapshot-") && !r.done {
		return 0, fmt.Errorf("%w: %s has no end", errCorrupt, filepath.Base(path))
	}
	return size, nil
}

// continueJournal opens the last journal for appending behind its last whole
// record.
func (s *Store) continueJournal(n int, size int64) error {
	f, err := os.OpenFile(s.index.journal(n), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		_ = f.Close()
		return err
	}
	s.mu.journal = &journal{f: f, size: size}
	if size > 0 {
		return nil
	}
	// The process died while it wrote the header.
	var e encoder
	encodeHeader(&e)
	return s.mu.journal.append(e.b)
}

func (d indexDir) removeBefore(first int, found indexFiles) error {
	for _, n := range found.snapshots {
		if n < first {
			if err := os.Remove(d.snapshot(n)); err != nil {
				return err
			}
		}
	}
	for _, n := range found.journals {
		if n < first {
			if err := os.Remove(d.journal(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// record makes the change that one record tells of.
func (r *replay) record(payload []byte) error {
	d := &decoder{b: payload}
	kind := d.byte()
	if (kind == recordHeader) != (r.records == 0) {
		return fmt.Errorf("%w: header out of place", errCorrupt)
	}
	if r.done {
		return fmt.Errorf("%w: record behind the end", errCorrupt)
	}
	buckets := r.store.mu.buckets
	switch kind {
	case recordHeader:
		if magic := d.string(); magic != formatMagic {
			return fmt.Errorf("%w: not an index", errCorrupt)
		}
		if v := d.uint(); v != formatVersion {
			return fmt.Errorf("index format %d is not known, only %d", v, formatVersion)
		}
		return d.err
	case recordSnapshotDone:
		if n := d.uint(); d.err == nil && n != r.records {
			return fmt.Errorf("%w: %d records of %d", errCorrupt, r.records, n)
		}
		r.done = true
		return d.err
	case recordBucket:
		info := Bucket{Name: d.string(), Created: time.Unix(d.length(), 0).UTC(), ACL: d.string(), StorageClass: d.string(), Redundancy: d.string()}
		if b := buckets[info.Name]; b != nil {
			b.info = info
		} else {
			buckets[info.Name] = newBucket(info)
		}
		return d.err
	case recordBucketGone:
		delete(buckets, d.string())
		return d.err
	}
	b := buckets[d.string()]
	if b == nil {
		return fmt.Errorf("%w: kind %d names no bucket that exists", errCorrupt, kind)
	}
	switch kind {
	case recordObject:
		r.object(d, b)
	case recordObjectGone:
		r.drop(b.remove(d.string()))
	case recordUpload:
		r.upload(d, b)
	case recordPart:
		r.part(d, b)
	case recordUploadGone:
		id := d.string()
		r.dropUpload(b, id)
	default:
		return fmt.Errorf("%w: kind %d", errCorrupt, kind)
	}
	return d.err
}

func (r *replay) object(d *decoder, b *bucket) {
	key, id := d.string(), d.string()
	o := &Object{Type: Type(d.byte()), modTime: d.length(), Size: d.length(), CRC64: d.fixed()}
	r.tag(d, &o.tag)
	o.parts = int32(d.uint())
	o.extents = r.extents(d)
	o.Attrs = r.attributes(d)
	if d.err != nil {
		return
	}
	r.drop(b.set(key, o))
	if id != "" {
		r.dropUpload(b, id)
	}
}

func (r *replay) upload(d *decoder, b *bucket) {
	u := &upload{parts: make(map[int]*part)}
	u.ID, u.Key = d.string(), d.string()
	u.Initiated = time.Unix(d.length(), 0).UTC()
	u.Attrs = r.attributes(d)
	if d.err == nil {
		b.uploads[u.ID] = u
	}
}

func (r *replay) part(d *decoder, b *bucket) {
	u := b.uploads[d.string()]
	p := &part{Part: Part{Number: int(d.uint())}}
	p.modTime, p.Size, p.CRC64 = d.length(), d.length(), d.fixed()
	r.tag(d, &p.tag)
	p.extents = r.extents(d)
	if d.err != nil {
		return
	}
	if u == nil {
		d.fail("upload")
		return
	}
	if old := u.parts[p.Number]; old != nil {
		r.dropExtents(old.extents)
	}
	u.parts[p.Number] = p
}

func (r *replay) tag(d *decoder, tag *[16]byte) {
	if len(d.b) < len(tag) {
		d.fail("tag")
		return
	}
	d.b = d.b[copy(tag[:], d.b):]
}

// attributes shares equal ones as intern does, by their encoded form.
func (r *replay) attributes(d *decoder) *Attributes {
	b := d.bytes()
	if a := r.store.mu.attributes[string(b)]; a != nil {
		return a
	}
	a, err := decodeAttributes(b)
	if err != nil {
		d.fail("attributes")
		return nil
	}
	return r.store.mu.attributes.intern(a)
}

// extents takes a reference for each.
func (r *replay) extents(d *decoder) []extent {
	n := d.count(3)
	if n == 0 {
		return nil
	}
	extents := make([]extent, n)
	for i := range extents {
		id := d.uint()
		extents[i] = extent{off: d.length(), n: d.length()}
		f := r.files[id>>1]
		if f == nil {
			f = &file{id: id >> 1, packed: id&1 == 1}
			r.files[id>>1] = f
		}
		extents[i].file = f
	}
	if d.err != nil {
		return nil
	}
	retain(extents)
	return extents
}

func (r *replay) drop(o *Object) {
	if o != nil {
		r.dropExtents(o.extents)
	}
}

func (r *replay) dropUpload(b *bucket, id string) {
	if u := b.uploads[id]; u != nil {
		for _, p := range u.parts {
			r.dropExtents(p.extents)
		}
		delete(b.uploads, id)
	}
}

// dropExtents only counts: what has no references at the end is removed then.
func (r *replay) dropExtents(extents []extent) {
	for _, e := range extents {
		e.file.refs.Add(-1)
	}
}

// adopt compares what the index refers to with what is on disk. A file
// that is missing is an error, one that nothing refers to is removed.
func (d *dataDir) adopt(known map[uint64]*file) error {
	last := uint64(0)
	for id, f := range known {
		last = max(last, id)
		if f.refs.Load() == 0 {
			delete(known, id)
		}
	}
	dirs, err := d.directories()
	if err != nil {
		return err
	}
	found := 0
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			id, err := strconv.ParseUint(e.Name(), 16, 64)
			if err != nil {
				return fmt.Errorf("%w: unknown file %q", errCorrupt, filepath.Join(dir, e.Name()))
			}
			last = max(last, id)
			f := known[id]
			if f == nil {
				if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
				continue
			}
			found++
			if !f.packed {
				continue
			}
			if f.pack, err = os.OpenFile(d.path(id, true), os.O_RDWR, 0); err != nil {
				return err
			}
			d.packs.open[id] = f
		}
	}
	d.lastID.Store(last)
	if found == len(known) {
		return nil
	}
	for id, f := range known {
		if _, err := os.Stat(d.path(id, f.packed)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %q is missing", errCorrupt, d.path(id, f.packed))
		}
	}
	return fmt.Errorf("%w: %d files are missing", errCorrupt, len(known)-found)
}

// directories are the directories of packs and blobs.
func (d *dataDir) directories() ([]string, error) {
	dirs := []string{filepath.Join(d.dir, "packs")}
	blobs := filepath.Join(d.dir, "blobs")
	entries, err := os.ReadDir(blobs)
	for _, e := range entries {
		dirs = append(dirs, filepath.Join(blobs, e.Name()))
	}
	return dirs, err
}

// thinPacks returns the packs of which less than half is still referred to.
func (s *Store) thinPacks() (map[uint64]*file, error) {
	if len(s.data.packs.open) == 0 {
		return nil, nil
	}
	live := make(map[uint64]int64, len(s.data.packs.open))
	s.mu.buckets.eachExtents(func(extents *[]extent) {
		for _, e := range *extents {
			if e.file.packed {
				live[e.file.id] += e.n
			}
		}
	})
	thin := make(map[uint64]*file)
	for id, f := range s.data.packs.open {
		info, err := f.pack.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() > 1<<20 && live[id] < info.Size()/2 {
			thin[id] = f
		}
	}
	return thin, nil
}

// repack copies what is left in the given packs to a new one and returns the
// extents that are no longer used. They may be released when a snapshot has been
// written, not before: until then the index on disk refers to them. It runs only
// while the store is being opened, when objects may still be changed.
func (s *Store) repack(doomed map[uint64]*file) (unused []extent, failed error) {
	if len(doomed) == 0 {
		return nil, nil
	}
	var buf bytes.Buffer
	s.mu.buckets.eachExtents(func(extents *[]extent) {
		for i, e := range *extents {
			if doomed[e.file.id] == nil || failed != nil {
				continue
			}
			buf.Reset()
			if _, err := copyPacked(&buf, e.file.pack, e.off, e.n); err != nil {
				failed = err
				return
			}
			moved, err := s.data.pack(buf.Bytes())
			if err != nil {
				failed = err
				return
			}
			(*extents)[i] = moved
			unused = append(unused, e)
		}
	})
	return unused, failed
}

// eachExtents calls f for the extents of every object and part.
func (all buckets) eachExtents(f func(extents *[]extent)) {
	for _, b := range all {
		b.objects.Scan(func(_ string, o *Object) bool {
			f(&o.extents)
			return true
		})
		for _, u := range b.uploads {
			for _, p := range u.parts {
				f(&p.extents)
			}
		}
	}
}
