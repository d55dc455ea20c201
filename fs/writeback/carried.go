package writeback

import (
	"context"
	"slices"

	"github.com/pailfs/pailfs/oss"
)

// carriedRecord says that the object which a file was, or was made from, has become Object at
// its old key: it was published there while the file was renamed. A copy of an object onto
// itself, which changes its metadata, may give it another ETag.
type carriedRecord struct {
	File   fileID
	Object oss.Object
	CRC    uint64
	// Content says that Object is the content of the file, too.
	Content bool
}

func (*carriedRecord) kind() recordKind { return kindCarried }
func (r *carriedRecord) walk(c *coder) {
	c.uint(&r.File)
	c.object(&r.Object)
	c.uint(&r.CRC)
	c.bool(&r.Content)
}

func (r *carriedRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Published, f.PubCRC = r.Object, r.CRC
	if r.Content {
		f.Object = r.Object
	}
	st.displace(f)
}

// carried returns what else is to be recorded when op has made obj of before; nil if its
// file is still at its key, or was made from something else.
func (st *state) carried(op operation, before, obj oss.Object, crc uint64) *carriedRecord {
	f, now := st.Files[op.File], st.Ops[op.ID]
	if op.Kind != opPut || f == nil || now == nil || before.ETag == "" || !sameBytes(f.Published, before) && !sameBytes(f.Object, before) {
		return nil
	}
	content := sameBytes(f.Object, before) && f.Gen == now.Gen && (!f.Staged || f.Gen == f.BaseGen)
	if f.Linked && f.Key == op.Key && (!content || !f.Staged) {
		return nil // the end of op says all that
	}
	return &carriedRecord{File: f.ID, Object: obj, CRC: crc, Content: content}
}

// follows records that found is what a publication of ours, whose answer was lost, has made
// of the object that is the content of the file of op, and reports whether it is.
func (s *Space) follows(ctx context.Context, op operation, src oss.Object, found oss.Info) (bool, error) {
	if found.Size != src.Size {
		return false, nil
	}
	s.mu.Lock()
	var tried []intent
	if k := s.mu.Keys[src.Key]; k != nil {
		tried = slices.Clone(k.Maybe)
	}
	s.mu.Unlock()
	found, err := s.undisputed(ctx, found, tried)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, k := s.mu.Files[op.File], s.mu.Keys[src.Key]
	if f == nil || f.Staged || f.Object != src || k == nil || !sameBytes(k.Remote, src) {
		return false, nil
	}
	// While the file needs the object, nobody else changes its key.
	if !slices.ContainsFunc(k.Maybe, func(i intent) bool { return i.matches(found) }) {
		return false, nil
	}
	s.record(&carriedRecord{File: f.ID, Object: found.Object, CRC: found.CRC64, Content: true})
	return true, nil
}
