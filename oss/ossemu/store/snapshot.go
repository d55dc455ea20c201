package store

import (
	"bufio"
	"fmt"
	"maps"
	"os"

	"github.com/tidwall/btree"
)

// snapshotThreshold is the size at which a journal is long: reading it at start
// would take clearly longer than reading a snapshot.
func (s *Store) snapshotThreshold() int64 { return s.longJournal + 2*s.mu.snapshotSize }

// image is the state of the store at one instant.
type image struct {
	buckets []Bucket
	objects []*btree.Map[string, *Object]
	uploads []map[string]*upload
}

// image takes the state. Trees are shared until one side changes, uploads are
// copied. The caller holds the store's mu.
func (all buckets) image() image {
	var m image
	for _, b := range all {
		m.buckets = append(m.buckets, b.info)
		m.objects = append(m.objects, b.objects.Copy())
		uploads := make(map[string]*upload, len(b.uploads))
		for id, u := range b.uploads {
			c := *u
			c.parts = maps.Clone(u.parts)
			uploads[id] = &c
		}
		m.uploads = append(m.uploads, uploads)
	}
	return m
}

// snapshotIfLong begins a new journal when the present one is long, and writes
// the state at that point to a snapshot in the background. The caller holds mu.
func (s *Store) snapshotIfLong() {
	if s.mu.snapshotting || s.mu.journal.size < s.snapshotThreshold() {
		return
	}
	next := s.mu.generation + 1
	j, err := createJournal(s.index.journal(next))
	if err != nil {
		s.log.Warn("begin new journal", "error", err)
		return
	}
	if err := s.mu.journal.close(); err != nil {
		s.log.Warn("close journal", "error", err)
	}
	s.mu.journal, s.mu.generation, s.mu.snapshotting = j, next, true
	m := s.mu.buckets.image()
	s.background.Go(func() {
		size, err := s.index.write(next, m)
		if err != nil {
			s.log.Warn("write snapshot", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.snapshotting = false
		if err == nil {
			s.mu.snapshotSize = size
		}
	})
}

// snapshotNow does the same while the store is being opened.
func (s *Store) snapshotNow() error {
	next := s.mu.generation + 1
	j, err := createJournal(s.index.journal(next))
	if err != nil {
		return err
	}
	if err := s.mu.journal.close(); err != nil {
		return err
	}
	s.mu.journal, s.mu.generation = j, next
	s.mu.snapshotSize, err = s.index.write(next, s.mu.buckets.image())
	return err
}

// write writes m as the state before journal n, then removes what it
// replaces.
func (d indexDir) write(n int, m image) (size int64, err error) {
	path := d.snapshot(n)
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	w := &snapshotWriter{w: bufio.NewWriterSize(f, 1<<20)}
	w.image(m)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if err := f.Close(); w.err == nil {
		w.err = err
	}
	if w.err != nil {
		os.Remove(path + ".tmp")
		return 0, w.err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return 0, err
	}
	found, err := d.list()
	if err != nil {
		return 0, err
	}
	if err := d.removeBefore(n, found); err != nil {
		return 0, fmt.Errorf("remove old index: %w", err)
	}
	return w.size, nil
}

// snapshotWriter writes records to a file until the first error.
type snapshotWriter struct {
	w       *bufio.Writer
	e       encoder
	frame   []byte
	records uint64
	size    int64
	err     error
}

// record writes what encode has left in e.
func (w *snapshotWriter) record() {
	if w.err != nil {
		return
	}
	w.frame = appendFrame(w.frame[:0], w.e.b)
	w.e.b = w.e.b[:0]
	_, w.err = w.w.Write(w.frame)
	w.records++
	w.size += int64(len(w.frame))
}

func (w *snapshotWriter) image(m image) {
	encodeHeader(&w.e)
	w.record()
	for i := range m.buckets {
		info := &m.buckets[i]
		encodeBucket(&w.e, info)
		w.record()
		m.objects[i].Scan(func(key string, o *Object) bool {
			encodeObject(&w.e, info.Name, key, o, "")
			w.record()
			return w.err == nil
		})
		for id, u := range m.uploads[i] {
			encodeUpload(&w.e, info.Name, u)
			w.record()
			for _, p := range u.parts {
				encodePart(&w.e, info.Name, id, p)
				w.record()
			}
		}
	}
	w.e.byte(recordSnapshotDone)
	w.e.uint(w.records)
	w.record()
}
